"""Reserved and device from the instants: what shares segments, what is cut out of others, what a full card leaves."""

import pytest

from vramcast.hardware.cards import find_accelerator
from vramcast.ledger import Instant, RankMemory, Term
from vramcast.training.counters import Pieces, segment_bytes
from vramcast.training.forecast import forecast_training
from vramcast.training.gathers import Units, guarded
from vramcast.training.recipe.parts import Recipe
from vramcast.training.shape import Shape, shape_model
from vramcast.workload import Adapter, Parallel, Training

LORA = {"method": "lora", "adapter": Adapter(rank=8, targets=("q_proj", "v_proj")), "param_dtype": "bfloat16"}
SHARDED = {"gpus": 2, "parallel": Parallel(dp=2), "fsdp": 1, "checkpointing": "full", "micro_batch": 8}


def rank(card: str | None = None, layers: int = 8, **question: object) -> RankMemory:
    asked = Training(**({"model": "x", "seq": 2048} | question))
    model = shape_model(Shape(layers=layers, hidden=2048, heads=16, ffn=8192, vocab=32000))
    return forecast_training(asked, model=model, card=find_accelerator(card) if card else None).worst


def largest(memory: RankMemory, name: str) -> int:
    return max((t.bytes for i in memory.instants for t in i.terms if t.name == name), default=0)


def test_gradients_take_the_room_of_dying_activations() -> None:
    question = {"checkpointing": "none", "micro_batch": 4, "optimizer": "sgd"}
    once, again = rank(**question), rank(**question, accumulate=2)
    gradients = largest(once, "gradients")
    assert largest(once, "activations") > gradients
    assert again.reserved_bytes - once.reserved_bytes == pytest.approx(gradients, rel=0.03)  # or 3 % of all that is allocated


def recipe(**question: object) -> Recipe:
    model = shape_model(Shape(layers=2, hidden=256, heads=4, vocab=1000))
    return forecast_training(Training(**({"model": "x"} | question)), model=model).recipe


def test_units_that_fsdp1_frees_stay_reserved_while_their_gathers_are_in_flight() -> None:
    """torch's limiter lets two gathers be in flight; FSDP2 and a model that is never resharded guard none."""
    units = Units(block=1000, depth=4, embedding=500, head=500, tied=False, ranks=2)
    held = [guarded(recipe(**SHARDED | {"fsdp": kind}), units) for kind in (1, 2)]
    assert held == [2 * 1000 * 2, 0.0]
    assert guarded(recipe(**SHARDED, options={"reshard": False}), units) == 0


@pytest.mark.parametrize(("sharding", "made", "needed"), [({}, 40, 25), ({}, 20, 10), ({"fsdp": 1, "gpus": 2}, 40, 35)])
def test_a_step_finds_half_of_its_room_in_what_forward_and_backward_leave(
    sharding: dict[str, object], made: int, needed: int
) -> None:
    """One block per unit, as FSDP1's shards are, fits into the logits' segments alone."""
    passing = {"weights": 100, "loss": 10, "temporaries": 10, "activations": 10}
    stepping = {"weights": 100, "temporaries": made}
    moments = tuple(
        Instant(name=name, terms=tuple(Term(name=n, bytes=size, why="") for n, size in sizes.items()))
        for name, sizes in (("loss", passing), ("optimizer step", stepping))
    )
    parallel = Parallel(dp=2) if sharding else Parallel()
    assert segment_bytes(recipe(parallel=parallel, checkpointing="full", **sharding), moments, Pieces()) == 130 + needed


def test_before_torch_2_gradients_outlive_the_step() -> None:
    old, new = (rank(framework_version=version, checkpointing="none", micro_batch=4) for version in ("4.26", "4.28"))
    alive = [next(t.bytes for t in i.terms if t.name == "gradients") for i in old.instants if i.name == "end of forward"]
    assert alive == [largest(old, "gradients")]
    assert not [t for i in new.instants if i.name == "end of forward" for t in i.terms if t.name == "gradients"]


def test_gradients_that_pile_up_without_logits_are_cut_out_of_temporaries() -> None:
    fused, eager = (rank(**LORA, **SHARDED, layers=48, loss=loss) for loss in ("linear", "eager"))
    kinds = {t.name for i in fused.instants for t in i.terms}
    apart = sum(largest(fused, name) for name in kinds)
    assert fused.reserved_bytes - apart > 0.1 * largest(fused, "temporaries")
    assert eager.reserved_bytes < sum(largest(eager, name) for name in {t.name for i in eager.instants for t in i.terms})


def test_where_the_card_fills_in_small_steps_it_ends_nearly_full() -> None:
    card = find_accelerator("A100-80GB")
    question = {"card": "A100-80GB", **LORA, "checkpointing": "full", "micro_batch": 64, "loss": "eager"}
    equal, varying = rank(**question), rank(**question, options={"lengths": "variable"})
    assert equal.allocated_bytes == varying.allocated_bytes < card.visible_bytes
    assert varying.device_bytes == pytest.approx(card.visible_bytes, rel=0.04)
    assert equal.device_bytes < varying.device_bytes <= card.visible_bytes


def test_an_untied_embeddings_gradient_comes_after_the_first_blocks() -> None:
    def gradients(name: str, **question: object) -> int:
        memory = rank(checkpointing="none", param_dtype="bfloat16", **question)
        return next(t.bytes for i in memory.instants for t in i.terms if i.name == name and t.name == "gradients")

    embedding = 32000 * 2048 * 2
    first, last = gradients("backward of the first block"), gradients("optimizer step")
    assert gradients("backward of the first block", accumulate=2) - first == embedding
    assert last - first > embedding  # the block's own are part of its working set


def test_a_fused_linear_loss_adds_the_heads_gradient_in_place() -> None:
    trained, frozen = (rank(checkpointing="full", loss="linear", **q) for q in ({"param_dtype": "bfloat16"}, LORA))
    assert largest(trained, "loss") - largest(frozen, "loss") == pytest.approx(32000 * 2048 * 2, rel=0.1)


def test_a_factor_without_a_mechanism_is_named_with_its_cases() -> None:
    """Where it decides the answer, the answer says so."""
    asked = Training(model="x", seq=2048, options={"lengths": "variable"})
    model = shape_model(Shape(layers=2, hidden=256, heads=4, vocab=1000))
    (note,) = (a for a in forecast_training(asked, model=model).assumed if a.name == "segment_generations")
    assert (note.value, note.because[:28]) == (2.8, "fitted: 2.3 to 3.6 in 67 run")
    plain = forecast_training(Training(model="x", seq=2048), model=model).assumed
    assert not any(a.because.startswith("fitted") for a in plain)
