"""Names of modules: what each dialect covers, and that folding a list never changes what it covers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.models.quantization.patterns import Patterns, canonical, compact

PARTS = st.sampled_from(["mlp", "self_attn", "q_proj", "gate", "experts", "lm_head", "visual", "0", "1", "12", "a*", "*b"])
NAMES = st.lists(PARTS, min_size=1, max_size=4).map(".".join)
LISTS = st.lists(
    st.one_of(NAMES, NAMES.map("model.layers.{}".format), st.integers(0, 30).map("model.layers.{}.mlp".format)), max_size=12
)


@given(LISTS, st.integers(0, 14), st.sampled_from(["mlp", "mlp.gate", "self_attn.q_proj", "mlp.experts.0.gate"]))
def test_folding_a_list_keeps_what_it_covers(names, layer, module):
    whole, folded = Patterns(names), Patterns(compact(names))
    name = f"model.layers.{layer}.{module}"
    assert whole.covers(name) == folded.covers(name)
    assert (layer in whole.layers("model.layers.{}.", module, (layer,))) == whole.covers(name)


@pytest.mark.parametrize(
    ("pattern", "covered", "spared"),
    [
        ("lm_head", "language_model.lm_head", "lm_head_norm"),
        ("visual", "model.visual.blocks.0.attn.qkv", "model.layers.0.visualizer"),
        ("mlp.gate", "model.layers.3.mlp.gate", "model.layers.3.mlp.gate_proj"),
        ("model.layers.1.mlp", "language_model.model.layers.1.mlp.up_proj", "model.layers.11.mlp.up_proj"),
        ("model.layers.1*", "model.layers.12.mlp", "model.layers.2.mlp"),
        ("model.layers.1.*", "model.layers.1.mlp", "model.layers.12.mlp"),
        ("model.layers.*.self_attn", "model.layers.7.self_attn.q_proj", "model.layers.7.mlp"),
        ("*.attn.*", "layers.3.attn.wq_b", "layers.3.ffn.w1"),
        ("model.layers.0.self_attn*", "model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj"),
        ("re:.*self_attn.*", "model.layers.7.self_attn.q_proj", "model.layers.7.mlp"),
        (r"re:.*mlp\.(gate|up)_proj.*", "model.layers.7.mlp.up_proj", "model.layers.7.mlp.down_proj"),
        (r"re:model\.layers\.[0-3]\..*", "model.layers.2.mlp", "model.layers.4.mlp"),
        ("layers.{0-2,9}.mlp", "model.layers.9.mlp.up_proj", "model.layers.3.mlp.up_proj"),
        ("layers.0", "model.layers.0.mlp", "vision_tower.encoder.layers.0.mlp"),
    ],
)
def test_each_dialect(pattern, covered, spared):
    assert Patterns([pattern]).covers(covered)
    assert not Patterns([pattern]).covers(spared)


def test_wrappers_are_dropped_and_towers_are_not():
    assert canonical("language_model.model.layers.3.mlp") == canonical("model.language_model.layers.3.mlp") == "layers.3.mlp"
    assert canonical("vision_model.model.layers.3.mlp") == "vision_model.model.layers.3.mlp"


def test_experts_fold_too_and_the_first_stands_for_all():
    names = [f"layers.{i}.mlp.experts.{e}.up" for i in range(3) for e in range(8)]
    folded = compact(compact(names))
    assert folded == ["layers.{0-2}.mlp.experts.{0-7}.up"]
    assert Patterns(folded).layers("layers.{}.", "mlp.experts.0.up", (0, 2, 3)) == {0, 2}


def test_long_lists_fold():
    names = [f"model.layers.{i}.mlp.{p}" for i in range(60) for p in ("gate", "up")]
    assert compact(names) == ["model.layers.{0-59}.mlp.gate", "model.layers.{0-59}.mlp.up"]


@pytest.mark.parametrize(
    "glob", ["model.layers.*.self_attn", "*.mlp.router", "lm_head", "layers.*.mlp.*_proj", "model.layers.1*.mlp"]
)
def test_globs_cover_the_same_layers_as_each_layer_asked_by_name(glob: str) -> None:
    found = Patterns([glob])
    for prefix in ("model.layers.{}.", "layers.{}.", "language_model.model.layers.{}."):
        for module in ("self_attn.q_proj", "mlp.router", "mlp.up_proj", "mlp.experts.0.up"):
            covered = {i for i in range(24) if found.covers(f"{prefix.replace('{}', str(i))}{module}")}
            assert found.layers(prefix, module, tuple(range(24))) == covered


def test_a_name_from_the_top_is_that_module_alone():
    """Molmo's head is "model.transformer.ff_out"; each of its layers has an "ff_out" of its own."""
    named = Patterns(["model.transformer.ff_out", "model.vision_backbone"])
    assert named.covers("model.transformer.ff_out")
    assert named.covers("model.vision_backbone.image_vit.patch_embedding")
    assert not named.covers("model.transformer.blocks.3.ff_out")
    assert not named.layers("model.transformer.blocks.{}.", "ff_out", (0, 1))
    assert Patterns(["ff_out"]).covers("model.transformer.blocks.3.ff_out")
