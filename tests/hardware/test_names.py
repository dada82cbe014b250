"""Names people type, counts, sizes, and what happens when a name fits several parts or none."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.errors import QuestionError
from vramcast.hardware.accelerator import catalogue
from vramcast.hardware.cards import find_accelerator, match_accelerator, parse_gpus
from vramcast.units import GiB


@pytest.mark.parametrize(
    ("typed", "part"),
    [
        ("4090", "rtx-4090"),
        ("RTX 4090", "rtx-4090"),
        ("rtx4090-24GB", "rtx-4090"),
        ("RTX 4090 D", "rtx-4090-d"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("3090ti", "rtx-3090-ti"),
        ("A100-80G", "a100-sxm4-80"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80"),
        ("A100-SXM4-40GB", "a100-sxm4-40"),
        ("A100 SXM 80", "a100-sxm4-80"),
        ("A100-80", "a100-sxm4-80"),
        ("h100 sxm", "h100-sxm5-80"),
        ("H100 80GB HBM3", "h100-sxm5-80"),
        ("H100-SXM-96GB (HBM2e 2.4TB/s, 500W)", "h100-sxm5-96"),
        ("H100 PCIe", "h100-pcie-80"),
        ("H200 PCIe", "h200-nvl-141"),
        ("NVIDIA GH200 480GB", "gh200-96"),
        ("L4", "l4"),
        ("L40S", "l40s"),
        ("A6000", "rtx-a6000"),
        ("RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("Quadro RTX 6000", "quadro-rtx-6000"),
        ("RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-bw"),
        ("MI300X", "mi300x"),
        ("AMD MI300X 192GB", "mi300x"),
        ("B200", "b200-sxm-180"),
        ("B200 192GB", "b200-sxm-180"),
        ("GB200 NVL72", "gb200-186"),
        ("DGX Spark", "gb10"),
        ("AMD Ryzen AI Max+ 395 (Strix Halo, gfx1151, unified memory)", "strix-halo-128"),
        ("m3 max 64gb", "apple-m3-max-64"),
        ("rtx-4090", "rtx-4090"),
    ],
)
def test_what_people_type(typed: str, part: str) -> None:
    assert find_accelerator(typed).id == part


def test_every_part_answers_to_its_own_id_and_name() -> None:
    for part in catalogue().values():
        assert find_accelerator(part.id) is part
        assert match_accelerator(part.name)[0] is part, part.name


def test_a_name_of_several_parts_is_an_assumption() -> None:
    card, (assumed,) = match_accelerator("A100")
    assert card.id == "a100-sxm4-40"
    assert "A100 SXM4 80GB" in assumed.because and "the smallest memory is taken, then SXM before PCIe" in assumed.because
    assert match_accelerator("RTX 4090")[1] == ()


@pytest.mark.parametrize(
    "typed", ["A100-80Gx2", "2xA100-80G", "2 x A100-80G", "A100-80G, A100-80G", "A100-80G + A100-80G", "A100-80G:2", "A100-80x2"]
)
def test_counts(typed: str) -> None:
    assert [card.id for card in parse_gpus(typed).cards] == ["a100-sxm4-80"] * 2


def test_mixed_cards_keep_their_order() -> None:
    assert [c.id for c in parse_gpus("RTX 5090, 2x RTX 4090").cards] == ["rtx-5090", "rtx-4090", "rtx-4090"]


def test_a_size_is_an_anonymous_card() -> None:
    card = find_accelerator("24GiB")
    assert card.visible_bytes == card.driver_bytes == 24 * GiB
    assert {find_accelerator(text).visible_bytes for text in ("80 GB", "80G", "80gib")} == {80 * GiB}
    assert card.capability is None


def test_unknown_names_offer_the_nearest() -> None:
    with pytest.raises(QuestionError, match=r"unknown GPU 'RTX 4095': did you mean .*RTX 4090"):
        find_accelerator("RTX 4095")
    with pytest.raises(QuestionError, match=r"unknown GPU 'rtx 4900': did you mean .*RTX"):
        parse_gpus("rtx 4900")
    with pytest.raises(QuestionError, match=r"unknown GPU 'H1000': did you mean .*H100"):
        parse_gpus("H1000")
    with pytest.raises(QuestionError, match=r"or give a size: 24GB"):
        find_accelerator("abacus")


def test_sizes_without_unit_and_silly_counts_are_refused() -> None:
    with pytest.raises(QuestionError, match=r"GPU memory '24' has no unit: write 24GB \(10\^9\) or 24GiB \(2\^30\)"):
        find_accelerator("24")
    with pytest.raises(QuestionError, match="GPU count 0 in '0xL4' is out of range: expected 1 to 100000"):
        parse_gpus("0xL4")
    with pytest.raises(QuestionError, match="names no GPU"):
        parse_gpus(" , ")


@given(st.text(max_size=40).filter(lambda text: text.strip().lower() != "local"))  # which asks this machine's driver
def test_any_text_is_answered_or_refused(text: str) -> None:
    try:
        assert parse_gpus(text).cards
    except QuestionError as error:
        assert len(str(error)) < 600


@pytest.mark.parametrize(
    ("typed", "card", "count"),
    [
        ("g5.xlarge", "a10g", 1),
        ("g5.12xlarge", "a10g", 4),
        ("ml.p4d.24xlarge", "a100-sxm4-40", 8),
        ("a2-highgpu-8g", "a100-sxm4-40", 8),
        ("g2-standard-24", "l4", 2),
        ("Standard_NC48ads_A100_v4", "a100-pcie-80", 2),
        ("colab", "t4", 1),
        ("DGX H100", "h100-sxm5-80", 8),
    ],
)
def test_machines_are_their_cards(typed: str, card: str, count: int) -> None:
    found = parse_gpus(typed)
    assert [c.id for c in found.cards] == [card] * count
    assert found.assumed[0].because == f"the cards of {typed}"


@pytest.mark.parametrize(("typed", "gib"), [("2080ti 22g", 22), ("gtx 960 4gb", 4), ("RTX 4090 48GB", 48)])
def test_a_size_that_no_part_has_is_a_card_rebuilt_with_it(typed: str, gib: int) -> None:
    card, assumed = match_accelerator(typed)
    assert card.sold_bytes == gib * GiB
    assert 0 < card.sold_bytes - card.visible_bytes < GiB
    assert "the typed memory is taken" in assumed[0].because
    assert find_accelerator(card.id).visible_bytes == card.visible_bytes


def test_macs_and_chinese_names() -> None:
    assert find_accelerator("MacBook Pro M3 Max 64GB").id == "apple-m3-max-64"
    assert find_accelerator("mac studio m2 ultra 192gb").id == "apple-m2-ultra-192"
    assert find_accelerator("华为昇腾910B").id == "ascend-910b"
    assert find_accelerator("RTX 6000 Blackwell").id == "rtx-pro-6000-bw"
    assert find_accelerator("RTX A6000 Ada").id == "rtx-6000-ada"
    assert [card.id for card in parse_gpus("2080ti 22gx2").cards] == ["rtx-2080-ti-22gb"] * 2
    assert find_accelerator("5090 Blackwell").id == "rtx-5090"
    assert find_accelerator("RTX 6000").id == "quadro-rtx-6000"
    with pytest.raises(QuestionError, match="which chip and memory"):
        find_accelerator("MacBook Pro")
    with pytest.raises(QuestionError, match="which chip and memory"):
        find_accelerator("MacBook Pro 20GB")
    with pytest.raises(QuestionError, match="'cpu' is no card: leave --gpu out"):
        find_accelerator("cpu")


@pytest.mark.parametrize(
    ("typed", "card"),
    [
        ("MacBook Pro 64GB", "apple-m4-pro-64"),
        ("mac studio 512gb", "apple-m3-ultra-512"),
        ("mac mini 64 GB", "apple-m4-pro-64"),
        ("Mac Book Air 24GB", "apple-m2-24"),
        ("mac pro 192gb", "apple-m2-ultra-192"),
        ("my 64gb mac", None),
        ("imac 512gb", None),
    ],
)
def test_a_mac_named_by_its_box_and_memory_takes_its_slowest_chip(typed: str, card: str | None) -> None:
    if card is None:
        with pytest.raises(QuestionError):
            find_accelerator(typed)
        return
    found, assumed = match_accelerator(typed)
    assert found.id == card
    assert all("the slowest memory is taken" in one.because for one in assumed)


def test_every_machine_names_cards_of_the_catalogue() -> None:
    from vramcast.hardware.machines import _AWS, _GOOGLE, _NAMED

    for text in {*_AWS.values(), *_NAMED.values(), *_GOOGLE.values()}:
        assert parse_gpus(text).cards[0].id in catalogue(), text


def test_a_name_of_thousands_of_letters_is_refused_at_once() -> None:
    started = time.process_time()
    with pytest.raises(QuestionError, match="is no name of a card"):
        find_accelerator("4" * 5_000)
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("typed", "part"),
    [
        ("5050", "rtx-5050"),
        ("RTX PRO 2000", "rtx-pro-2000-bw"),
        ("NVIDIA GeForce RTX 3070 Ti Laptop GPU", "rtx-3070-ti-laptop"),
        ("NVIDIA RTX 3500 Ada Generation Laptop GPU", "rtx-3500-ada-laptop"),
        ("NVIDIA RTX 4000 SFF Ada Generation", "rtx-4000-sff-ada"),
        ("Tesla M40 24GB", "tesla-m40-24"),
        ("Quadro GV100", "quadro-gv100"),
        ("A800 40GB Active", "a800-pcie-40"),
        ("H800 PCIe", "h800-pcie-80"),
        ("V100-SXM3-32GB", "v100-sxm3-32"),
        ("AMD Instinct MI300A", "mi300a"),
        ("RX 6650 XT", "rx-6650-xt"),
        ("780M", "radeon-780m"),
        ("Intel(R) Arc(TM) A750 Graphics", "arc-a750"),
        ("Intel Data Center GPU Flex 170", "gpu-flex-170"),
        ("910B3", "ascend-910b3"),
        ("华为昇腾910B3", "ascend-910b3"),
        ("910C", "ascend-910c"),
        ("MTT S4000", "mtt-s4000"),
        ("DCU K100_AI", "hygon-k100-ai"),
        ("inf2", "inferentia2"),
        ("M5 Max 128GB", "apple-m5-max-128"),
        ("Jetson Orin NX 16GB", "jetson-orin-nx-16"),
    ],
)
def test_cards_that_were_refused_until_november_2026(typed: str, part: str) -> None:
    assert find_accelerator(typed).id == part


@pytest.mark.parametrize(
    ("bare", "common", "said", "rare"),
    [
        ("RTX 3060", "rtx-3060-12", "RTX 3060 8GB", "rtx-3060-8"),
        ("H100", "h100-sxm5-80", "H100 64GB", "h100-sxm5-64"),
        ("P100", "p100-sxm2-16", "P100 12GB", "tesla-p100-pcie-12"),
    ],
)
def test_a_version_that_few_hold_is_meant_only_where_its_memory_is_said(bare: str, common: str, said: str, rare: str) -> None:
    assert find_accelerator(bare).id == common
    assert find_accelerator(said).id == rare
    assert catalogue()[rare].rare


@pytest.mark.parametrize(
    ("typed", "card", "count"),
    [
        ("8卡H100", "h100-sxm5-80", 8),
        ("两张4090", "rtx-4090", 2),
        ("单卡A100 80G", "a100-sxm4-80", 1),
        ("4090显卡", "rtx-4090", 1),
        ("RunPod A100 SXM 80GB", "a100-sxm4-80", 1),
        ("Lambda 8x H100", "h100-sxm5-80", 8),
        ("Kaggle T4 x2", "t4", 2),
        ("gpu_8x_a100_80gb_sxm4", "a100-sxm4-80", 8),
        ("BM.GPU.L40S.4", "l40s", 4),
        ("inf2.48xlarge", "inferentia2", 12),
        ("g4-standard-96", "rtx-pro-6000-bw", 2),
        ("ND H200 v5", "h200-sxm-141", 8),
        ("DGX B300", "b300-sxm-288", 8),
        ("NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)", "rtx-4090", 1),
        ("Advanced Micro Devices, Inc. [AMD/ATI] Navi 31 [Radeon RX 7900 XT/7900 XTX]", "rx-7900-xt", 1),
        ("摩尔线程 S4000", "mtt-s4000", 1),
        ("gfx942", "mi300x", 1),
    ],
)
def test_counts_sellers_and_brackets(typed: str, card: str, count: int) -> None:
    assert [c.id for c in parse_gpus(typed).cards] == [card] * count


@pytest.mark.parametrize(
    ("typed", "part", "seen_mib"),
    [
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", "h100-sxm5-80", 40448),
        ("H100 MIG 2g.20gb", "h100-sxm5-80", 20096),
        ("H100 MIG 1g.10gb", "h100-sxm5-80", 9984),
        ("H200 MIG 3g.71gb", "h200-sxm-141", 71424),
        ("NVIDIA A100-SXM4-80GB MIG 2g.20gb", "a100-sxm4-80", 19968),
    ],
)
def test_a_slice_is_a_share_of_its_card(typed: str, part: str, seen_mib: int) -> None:
    """Memory as nvidia-smi showed it for these slices, at most 1.5 % below."""
    card, (told,) = match_accelerator(typed)
    whole = catalogue()[part]
    assert card.name.startswith(whole.name) and "a slice of" in told.because
    assert 0.985 < card.visible_bytes / (seen_mib * 2**20) <= 1
    assert card.bandwidth_bytes_per_s < whole.bandwidth_bytes_per_s and card.sms < whole.sms
    assert find_accelerator(card.id).visible_bytes == card.visible_bytes
    assert parse_gpus(f"2x {typed}").cards[1].visible_bytes == card.visible_bytes


@pytest.mark.parametrize("typed", ["6090", "760M", "512MB", "A100 MIG 3g.90gb"])
def test_a_bare_model_number_is_no_memory(typed: str) -> None:
    with pytest.raises(QuestionError, match="unknown GPU"):
        find_accelerator(typed)


@pytest.mark.parametrize(
    ("typed", "card"),
    [
        ("RTX 6000", "quadro-rtx-6000"), ("Quadro RTX 6000", "quadro-rtx-6000"), ("RTX 6000 48GB", "rtx-6000-ada"),
        ("RTX6000 96gb", "rtx-pro-6000-bw"), ("RTX 6000 Ada", "rtx-6000-ada"), ("RTX 6000 64GB", "quadro-rtx-6000-64gb"),
    ],
)  # fmt: skip
def test_three_cards_are_called_rtx_6000(typed: str, card: str) -> None:
    assert find_accelerator(typed).id == card
