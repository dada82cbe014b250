"""The smallest layouts: fewest cards first, least sharding that fits, nothing a framework refuses."""

import msgspec

import vramcast
from vramcast import Training, forecast
from vramcast.planning.layouts import layouts
from vramcast.workload import Parallel


def test_what_does_not_fit_one_card_is_offered_on_more() -> None:
    answer = forecast(Training(model="meta-llama/Llama-3.1-70B", gpu="H100 SXM", seq=4096, checkpointing="full"))
    assert answer.fit.verdict == "no"
    assert [row.gpus for row in answer.cards] == sorted(row.gpus for row in answer.cards)
    assert all(row.needed_bytes <= row.capacity_bytes for row in answer.cards if row.verdict == "fits")
    assert answer.cards[0].layout == "fully sharded"


def test_without_a_card_those_that_compute_the_type_are_listed() -> None:
    answer = forecast(Training(model="meta-llama/Llama-3.1-8B", method="lora", seq=4096, checkpointing="full"))
    assert answer.cards
    assert not any("V100" in row.gpu for row in answer.cards), "Volta has no bf16"
    sizes = [(row.gpus, row.capacity_bytes) for row in answer.cards]
    assert sizes == sorted(sizes)


def test_layouts_cover_every_rank() -> None:
    for framework in ("hf_trainer", "megatron"):
        for gpus in (1, 2, 8, 64):
            for layout in layouts(Training(model="m", framework=framework), gpus):
                parallel = layout.fields["parallel"]
                assert parallel.tp * parallel.pp * parallel.dp == gpus == layout.gpus


def test_the_public_names_are_there() -> None:
    assert all(hasattr(vramcast, name) for name in vramcast.__all__)


def test_more_cards_under_megatron_cut_the_model_as_the_table_of_cards_does() -> None:
    """The advice names the number of cards that the table names, keeps expert parallelism, and never says --fsdp."""
    question = Training(
        model="Qwen/Qwen3-30B-A3B", gpu="H100", gpus=8, framework="megatron", seq=8192, parallel=Parallel(tp=2, ep=8, dp=4)
    )
    found = forecast(question)
    more = next(a for a in found.advice if "x16" in a.change)
    assert more.then_verdict == "fits" and "--fsdp" not in more.change
    assert {row.gpus for row in found.cards if row.verdict == "fits"} == {16}
    assert all("ep 8" in row.layout for row in found.cards)


def test_sequence_parallelism_is_advised_where_tensors_are_cut_without_it() -> None:
    question = Training(
        model="meta-llama/Llama-3.1-70B", gpu="H100", gpus=32, framework="megatron", seq=8192, micro_batch=2,
        parallel=Parallel(tp=8, pp=4, dp=1),
    )  # fmt: skip
    plain = forecast(question)
    saves = [a.change.split() for a in plain.advice if a.then_fits]
    assert any("--sp" in words for words in saves)
    cut = forecast(msgspec.structs.replace(question, parallel=Parallel(tp=8, pp=4, dp=1, sp=True)))
    assert cut.worst.needed_bytes < plain.worst.needed_bytes
    assert not any("--sp" in a.change.split() for a in cut.advice)
