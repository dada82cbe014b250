"""Recurrent mixers in kernels: what mamba_ssm's own functions hold and reach.

The figures are bytes a token of mamba_ssm 2.3 (state-spaces/mamba at 0048fbf of June 2026): its Python was run with kernels
that do nothing on 8,192 tokens in bfloat16, and the allocator's bytes were counted.
"""

import pytest

from vramcast.models.layers import GatedDeltaNet, Mamba1, Mamba2
from vramcast.training.activations.choice import Style
from vramcast.training.activations.recurrent import recurrent
from vramcast.training.activations.tape import Life, Tape
from vramcast.training.recipe.parts import Kernels

TOKENS = 8192


def life_of(kind: object, modules: str, *, hidden: int, whole: bool = True, trains: bool = True) -> Life:
    """The mixer alone, or up to its scan, whose output the next operation saves."""
    tape = Tape(TOKENS * hidden * 2.0)
    recurrent(
        tape, Style(kernels=Kernels(modules=modules), trains=trains), kind, 0, tokens=float(TOKENS), seq=TOKENS, hidden=hidden
    )
    if not whole:
        del tape.operations[[op.name for op in tape.operations].index("norm") :]
    return tape.life()


@pytest.mark.parametrize(
    ("hidden", "heads", "groups", "chunk", "held", "forward", "backward"),
    [
        (1024, 32, 2, 256, 15432, 27080, 46977),
        (1536, 48, 1, 256, 22116, 38564, 64866),
        (4096, 128, 8, 128, 61728, 116512, 231942),
        (2688, 64, 8, 128, 34208, 63648, 124163),
    ],
)
def test_mamba2_with_its_norm_and_projection(
    hidden: int, heads: int, groups: int, chunk: int, held: int, forward: int, backward: int
) -> None:
    """transformers' form (use_mem_eff_path): the projection, the scan's result and the norm's statistics are all that is held."""
    kind = Mamba2(heads=heads, head_dim=64, groups=groups, state=128, conv=4, chunk=chunk)
    life, made = life_of(kind, "mamba2", hidden=hidden), hidden * 2
    assert life.saved / TOKENS == held - made
    assert life.forward_peak / TOKENS == pytest.approx(forward, rel=0.007)
    assert (life.backward_peak - life.saved) / TOKENS - made == pytest.approx(backward, rel=0.007)


@pytest.mark.parametrize(
    ("hidden", "heads", "groups", "chunk", "held", "forward", "backward"),
    [
        (1024, 32, 2, 256, 17472, 27072, 38785),
        (1536, 48, 1, 256, 25184, 36512, 52577),
        (4096, 128, 8, 128, 69888, 112384, 199172),
        (2688, 64, 8, 128, 36992, 62336, 107778),
    ],
)
def test_mamba2_alone(hidden: int, heads: int, groups: int, chunk: int, held: int, forward: int, backward: int) -> None:
    """Megatron's form: norm and projection come after it, so the gated result is saved once more."""
    kind = Mamba2(heads=heads, head_dim=64, groups=groups, state=128, conv=4, chunk=chunk)
    life, made = life_of(kind, "", hidden=hidden, whole=False), heads * 64 * 2
    assert life.saved / TOKENS == held - made
    assert life.forward_peak / TOKENS == pytest.approx(forward, rel=0.007)
    assert (life.backward_peak - life.saved) / TOKENS - made == pytest.approx(backward, rel=0.01)
    whole = life_of(kind, "", hidden=hidden)
    assert whole.saved - life.saved == TOKENS * (2 * made + 4 * groups)


def test_frozen_scans_save_the_same() -> None:
    """A custom function saves what it saves whatever trains."""
    kind = Mamba2(heads=48, head_dim=64, groups=1, state=128, conv=4)
    trained, frozen = (life_of(kind, "bamba", hidden=1536, trains=trains) for trains in (True, False))
    assert frozen.saved == trained.saved
    assert frozen.weight_gradients == 0 < trained.weight_gradients


def test_mamba1_keeps_a_state_each_2048_tokens() -> None:
    """MambaInnerFn at checkpoint_lvl 1: projection, scan, steps with B and C, those two again, and pairs of floats as states."""
    life = life_of(Mamba1(inner=3072, state=16, conv=4, dt_rank=96), "mamba", hidden=1536)
    assert life.saved == TOKENS * 2 * (2 * 3072 + 3072 + 96 + 4 * 16) + 4 * 3072 * 16 * 2 * 4


def test_gated_delta_rule_keeps_triangles_not_states() -> None:
    """flash-linear-attention saves queries, keys, values and 64 x 64 of every chunk; a state a chunk would be 4 times as much."""
    kind = GatedDeltaNet(key_heads=16, value_heads=32, key_dim=128, value_dim=128, conv=4)
    inner, conv = 32 * 128, 2 * 16 * 128 + 32 * 128
    held = 2 * (conv + inner + 64) + 2 * conv + 2 * 32 * 64 + 2 * inner  # projection, q k v, triangles, the scan's result
    small = 32 * 12 + 2 * 16 * 4 + 4 * 32  # gates, statistics of queries, keys and the output
    assert life_of(kind, "qwen3_next", hidden=2048).saved == TOKENS * (held + small + 2 * inner)  # and what the projection reads
