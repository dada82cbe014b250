"""The kernel laws: physical constants, invariants that any kernel obeys, numbers and arrays alike, and cards never measured."""

import itertools
import math

import numpy as np
import pytest

from vramcast.errors import QuestionError, UnmodelledError
from vramcast.hardware.cards import find_accelerator
from vramcast.speed.kernels import (
    Fabric,
    all_gather,
    all_reduce,
    all_to_all,
    backend,
    card_class,
    combine,
    decode_attention,
    dispatch,
    elementwise,
    gemm,
    law_for,
    laws,
    mla_decode,
    mla_prefill,
    moe,
    prefill_attention,
    recurrent,
    sparse_attention,
)
from vramcast.speed.kernels.harness import UNTUNED, UNTUNED_COMPUTE, in_step
from vramcast.speed.kernels.law import larger, logarithm, smaller, whole
from vramcast.speed.kernels.machine import OF_ANOTHER_MAKER
from vramcast.speed.kernels.moe import DISTRIBUTIONS, routed

CARDS = ("H100", "H200", "B200", "A100-80G", "L40S", "RTX PRO 6000", "4090", "A6000", "T4", "MI300X")
SHARES = {"bandwidth", "compute", "link", "one_shot"}

# Every operator as a function of one size that makes it longer.
GROWING = {
    "gemm tokens": lambda card, x: gemm(card=card, m=64 * x, n=4096, k=4096),
    "gemm width": lambda card, x: gemm(card=card, m=128, n=1024 * x, k=4096),
    "gemm depth": lambda card, x: gemm(card=card, m=128, n=4096, k=1024 * x),
    "gemm fp8": lambda card, x: gemm(card=card, m=256 * x, n=8192, k=8192, weight="fp8"),
    "decode": lambda card, x: decode_attention(
        card=card, batch=16, context_tokens_sum=16 * 1024 * x, heads=32, kv_heads=8, head_dim=128
    ),
    "prefill": lambda card, x: prefill_attention(card=card, new=512 * x, heads=32, kv_heads=8, head_dim=128),
    "prefill past": lambda card, x: prefill_attention(card=card, new=512, past=512 * x, heads=32, kv_heads=8, head_dim=128),
    "moe": lambda card, x: moe(card=card, tokens=32 * x, hidden=2048, inter=768, experts=128, top_k=8),
    "mla decode": lambda card, x: mla_decode(card=card, batch=8, context_tokens_sum=8 * 2048 * x, heads=16),
    "mla prefill": lambda card, x: mla_prefill(card=card, new=1024 * x, heads=16),
    "sparse": lambda card, x: sparse_attention(card=card, new=1024, past=4096 * x, batch=1, heads=16),
    "gdn": lambda card, x: recurrent(card=card, kind="gdn", phase="decode", batch=8 * x, heads=32, key_dim=128, value_dim=128),
    "gdn prefill": lambda card, x: recurrent(
        card=card, kind="gdn", phase="prefill", batch=1, new=1024 * x, heads=32, key_dim=128, value_dim=128
    ),
    "mamba decode": lambda card, x: recurrent(
        card=card, kind="mamba2", phase="decode", batch=8 * x, heads=64, key_dim=128, value_dim=64
    ),
    "elementwise": lambda card, x: elementwise(card=card, size_bytes=2**20 * x),
    "all-reduce": lambda card, x: all_reduce(card=card, world=4, size_bytes=2**18 * x),
    "dispatch": lambda card, x: dispatch(card=card, tokens=32 * x, hidden=7168, top_k=8, ep=8),
}


@pytest.mark.parametrize("name", CARDS)
@pytest.mark.parametrize("operator", GROWING)
def test_more_work_takes_longer(name: str, operator: str) -> None:
    card = find_accelerator(name)
    try:
        times = [float(GROWING[operator](card, x).seconds) for x in (1, 2, 4, 8, 16, 32)]
    except UnmodelledError as error:
        assert "link" in str(error)  # a card whose links the catalogue does not know
        return
    assert all(math.isfinite(t) and t > 0 for t in times)
    assert all(b >= a * 0.999 for a, b in itertools.pairwise(times))
    assert times[-1] > 1.05 * times[0]


@pytest.mark.parametrize("operator", GROWING)
def test_arrays_and_numbers_agree(operator: str) -> None:
    card = find_accelerator("H100")
    sizes = np.array([1.0, 2.0, 7.0, 32.0])
    together = GROWING[operator](card, sizes).seconds
    alone = [float(GROWING[operator](card, float(x)).seconds) for x in sizes]
    assert np.allclose(together, alone, rtol=1e-9)


@pytest.mark.parametrize("name", CARDS)
def test_nothing_is_faster_than_the_card(name: str) -> None:
    card = find_accelerator(name)
    rate = card.flops.get("bf16") or card.flops["fp16"]
    for tokens in (1, 16, 256, 4096, 65536):
        time = gemm(card=card, m=tokens, n=8192, k=8192).seconds
        assert time * rate * 1.06 >= 2 * tokens * 8192 * 8192  # GeForce cards hold up to 1.05 of their rated peak
        assert time * card.bandwidth_bytes_per_s >= 2 * 8192 * 8192
    step = decode_attention(card=card, batch=64, context_tokens_sum=64 * 8192, heads=32, kv_heads=8, head_dim=128)
    assert step.seconds * card.bandwidth_bytes_per_s >= 64 * 8192 * 8 * 256 * 2


def test_every_law_has_physical_constants_rows_and_a_source() -> None:
    found = laws()
    assert len(found) > 200
    for law in found.values():
        assert law.source, law.name
        assert law.fitted.n, law.name
        assert set(law.cards), law.name
        for own in ({}, *law.cards.values()):
            constants = law.constants | own
            assert all(math.isfinite(v) and v >= 0 for v in constants.values()), law.name
            assert all(0 < constants[share] <= 1.2 for share in SHARES & set(constants)), law.name


def test_a_measured_card_has_its_own_error_and_an_unknown_one_its_transfer() -> None:
    measured = law_for("gemm", "cublas", "bf16", find_accelerator("H100"))
    assert not measured.borrowed
    assert measured.error == measured.law.held
    sibling = law_for("gemm", "cublas", "bf16", find_accelerator("H200"))
    assert "H200" in sibling.borrowed and sibling.law is measured.law
    assert sibling.error.median >= 0.02
    other = law_for("gemm", "cublas", "bf16", find_accelerator("T4"))
    assert other.borrowed
    assert other.error.median > sibling.error.median


def test_a_format_that_a_card_cannot_multiply_is_unpacked() -> None:
    ada, hopper, ampere = (find_accelerator(name) for name in ("L40S", "H100", "A100-80G"))
    assert gemm(card=hopper, m=1, n=8192, k=8192, weight="nvfp4").law.precision == "int4_weight_only"
    assert gemm(card=ampere, m=1, n=8192, k=8192, weight="fp8").law.precision == "int8_weight_only"
    assert gemm(card=ada, m=1, n=8192, k=8192, weight="fp8").law.precision == "fp8"


def test_a_kernel_not_measured_here_is_taken_from_its_nearest_kin() -> None:
    card = find_accelerator("L40S")
    experts = moe(card=card, tokens=64, hidden=2048, inter=768, experts=128, top_k=8)
    assert (experts.law.backend, experts.law.card_class) == ("sglang/triton", "blackwell_pro")
    prefill = prefill_attention(card=card, new=512, heads=32, kv_heads=8, head_dim=128, dtype="fp8", backend="vllm/flashinfer")
    assert (prefill.law.backend, prefill.law.precision) == ("vllm/flashinfer", "bf16")


def test_an_estimate_says_what_binds_and_why() -> None:
    card = find_accelerator("H100")
    small, large = gemm(card=card, m=1, n=8192, k=8192), gemm(card=card, m=8192, n=8192, k=8192)
    assert (small.binds, large.binds) == ("bandwidth", "compute")
    assert gemm(card=card, m=1, n=512, k=512).binds in {"launch", "compute"}
    assert "launch" in small.why and "gemm vllm/cublas bf16 on hopper_dc" in small.why


@pytest.mark.parametrize(
    ("name", "kind"),
    [("H100", "hopper_dc"), ("H20", "hopper_dc"), ("GB300", "blackwell_dc"), ("A100-80G", "ampere_dc"), ("A10", "ampere_pro"),
     ("3090", "geforce"), ("5090", "geforce"), ("L40S", "ada_pro"), ("L4", "low_power"), ("T4", "low_power"),
     ("RTX PRO 6000", "blackwell_pro"), ("MI300X", "cdna3"), ("MI355X", "cdna4"), ("V100", "volta_dc")],
)  # fmt: skip
def test_cards_fall_into_classes(name: str, kind: str) -> None:
    assert card_class(find_accelerator(name)) == kind


@pytest.mark.parametrize(
    ("engine", "version", "operator", "precision", "card", "expected"),
    [
        ("vllm", (0, 24), "decode_attention", "bf16", "H100", "vllm/fa3"),
        ("vllm", (0, 6), "decode_attention", "bf16", "H100", "vllm/fa2"),
        ("vllm", (0, 24), "decode_attention", "fp8", "L40S", "vllm/flashinfer"),
        ("vllm", (0, 24), "moe", "bf16", "H100", "vllm/triton"),
        ("vllm", (0, 24), "moe", "mxfp4", "B200", "vllm/trtllm_gen"),
        ("sglang", (0, 5, 14), "prefill_attention", "bf16", "B200", "sglang/trtllm_gen"),
        ("tensorrt_llm", (1, 3), "gemm", "fp8", "H100", "trtllm"),
    ],
)
def test_engines_take_these_kernels(engine, version, operator, precision, card, expected) -> None:
    taken = backend(engine=engine, version=version, operator=operator, card=find_accelerator(card), precision=precision)
    assert taken.name == expected
    assert expected in taken.because


def test_a_kernel_that_no_rule_names_is_refused() -> None:
    with pytest.raises(UnmodelledError, match="name the back end"):
        backend(engine="llama_cpp", operator="moe", card=find_accelerator("H100"))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_rows_and_experts_stay_within_what_there_is(distribution: str) -> None:
    tokens = np.array([1, 2, 16, 128, 4096, 65536])
    for ep in (1, 8, 64):
        active, rows = routed(tokens, 128, 8, ep=ep, exponent=DISTRIBUTIONS[distribution])
        assert (active >= 1).all() and (active <= 128 / ep + 1e-6).all()
        assert (rows <= tokens * 8 + 1e-6).all() and (rows >= tokens * 8 / ep - 1e-6).all()


def test_a_balanced_router_touches_what_it_says() -> None:
    assert routed(4, 128, 8, ep=1, exponent=0.0) == (32, 32)
    active, _ = routed(4, 128, 8, ep=1, exponent=-1.0)
    assert active == pytest.approx(128 * (1 - (1 - 8 / 128) ** 4))


def test_more_nodes_cost_more() -> None:
    card, fabric = find_accelerator("H100"), Fabric(rail_bytes_per_s=50e9, rails=8)
    inside = all_reduce(card=card, world=8, size_bytes=2**28).seconds
    across = all_reduce(card=card, world=16, size_bytes=2**28, nodes=2, fabric=fabric).seconds
    assert across > inside
    assert all_gather(card=card, world=16, size_bytes=2**28, nodes=2, fabric=fabric).seconds < across


def test_combining_carries_more_than_dispatching() -> None:
    card = find_accelerator("H100")
    same = {"card": card, "tokens": 4096, "hidden": 7168, "top_k": 8, "ep": 8, "implementation": "high_throughput"}
    assert combine(**same).seconds > dispatch(**same).seconds


@pytest.mark.parametrize(
    ("nodes", "world", "size_bytes", "microseconds"),
    [(2, 4, 2**32, 45_842), (2, 8, 2**32, 45_059), (2, 16, 2**32, 43_952)],
)
def test_an_all_to_all_between_nodes_sends_what_leaves_the_node(nodes, world, size_bytes, microseconds) -> None:
    """nccl-tests on pairs of H100 nodes with a rail of 50 GB/s a card (xxrjun/nccl-tests-cluster, pairwise, alltoall)."""
    fabric = Fabric(rail_bytes_per_s=50e9, rails=8)
    found = all_to_all(card=find_accelerator("H100 SXM5 80GB"), world=world, size_bytes=size_bytes, nodes=nodes, fabric=fabric)
    assert found.seconds * 1e6 == pytest.approx(microseconds, rel=0.12)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda card: gemm(card=card, m=1, n=1, k=1, weight="int3"), "weight format"),
        (lambda card: moe(card=card, tokens=1, hidden=1, inter=1, experts=1, top_k=1, distribution="zipf"), "distribution"),
        (lambda card: recurrent(card=card, kind="rwkv", phase="decode", batch=1, heads=1, key_dim=1, value_dim=1), "recurrent"),
        (lambda card: all_reduce(card=card, world=6, size_bytes=1, nodes=4, fabric=Fabric(rail_bytes_per_s=1)), "6 ranks"),
        (lambda card: all_reduce(card=card, world=16, size_bytes=1, nodes=2), "fabric"),
        (lambda card: all_reduce(card=card, world=2, size_bytes=1, implementation="mpi"), "implementation"),
    ],
)
def test_wrong_questions_are_refused(call, said: str) -> None:
    with pytest.raises(QuestionError, match=said):
        call(find_accelerator("H100"))


def test_arithmetic_takes_numbers_and_arrays() -> None:
    a, b = np.array([1.0, 5.0]), np.array([3.0, 2.0])
    assert (larger(a, b) == [3, 5]).all() and (smaller(a, b) == [1, 2]).all() and (whole(b / 2) == [2, 1]).all()
    assert logarithm(1e6) == pytest.approx(math.log(1e6), rel=1e-5)


def test_unpacked_weights_take_the_kernel_of_their_class_before_its_format_elsewhere() -> None:
    """Marlin multiplies 16-bit numbers whatever it unpacks: int4 experts on a B200 are its own Marlin's, not an A100's."""
    found = law_for("moe", "vllm/marlin", "int4_weight_only", find_accelerator("B200"))
    assert (found.law.backend, found.law.precision, found.law.card_class) == ("vllm/marlin", "mxfp4_weight_only", "blackwell_dc")
    assert "int4_weight_only" in found.borrowed
    measured = law_for("moe", "sglang/marlin", "int4_weight_only", find_accelerator("A100-80G"))
    assert not measured.borrowed


def test_a_server_does_not_have_the_best_kernel_of_every_shape_of_8_bit_blocks_on_instinct() -> None:
    card = find_accelerator("MI300X")
    tuned = gemm(card=card, m=16, n=4096, k=7168, weight="fp8_block", backend="aiter")
    served = in_step(tuned)
    assert served.seconds == pytest.approx(UNTUNED * tuned.seconds)
    assert sum(served.parts.values()) == pytest.approx(UNTUNED * sum(tuned.parts.values()))


def test_untuned_products_of_16_bits_compute_longer_and_read_as_fast() -> None:
    """At one row a product waits for its weights; at 128 for the kernel that nobody tuned for its shape."""
    card = find_accelerator("MI300X")
    for rows, most in ((1, 1.3), (128, 1.45)):
        tuned = gemm(card=card, m=rows, n=4096, k=7168, weight="bf16", backend="aiter")
        served = in_step(tuned)
        assert served.parts["compute"] == pytest.approx(UNTUNED_COMPUTE * tuned.parts["compute"])
        assert served.parts["bandwidth"] == tuned.parts["bandwidth"]
        assert tuned.seconds < served.seconds < most * tuned.seconds


def test_kernels_timed_on_another_maker_s_cards_alone_move_less_on_instinct() -> None:
    """Attention's cache and an engine's own all-reduce; RCCL has its own name, and a card of the law's maker its own share."""
    for operator, kernel, precision, name in (
        ("decode_attention", "sglang/triton", "bf16", "bandwidth"), ("all_reduce", "vllm", "8", "link"),
    ):  # fmt: skip
        own, abroad = (law_for(operator, kernel, precision, find_accelerator(card)) for card in ("H100", "MI300X"))
        assert abroad.constants[name] == pytest.approx(OF_ANOTHER_MAKER[operator][name] * own.law.constants[name])
        assert abroad.borrowed
    nccl = law_for("all_reduce", "nccl", "8", find_accelerator("MI300X"))
    assert nccl.constants["link"] == nccl.law.constants["link"]
