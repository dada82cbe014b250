"""Megatron's recomputed modules and chunks: what each drops of a layer, in bytes written out by hand."""

import pytest

from vramcast.models.inventory import Model
from vramcast.training.activations.choice import Style
from vramcast.training.activations.layer import layer_tape
from vramcast.training.activations.layers import Layers, layers_of
from vramcast.training.activations.selective import MODULES, module_bytes
from vramcast.training.activations.sizes import Shape as Batch
from vramcast.training.counts import stages
from vramcast.training.recipe.parts import Kernels, parse_policy
from vramcast.training.shape import Shape, shape_model
from vramcast.workload import Parallel

TOKENS, HIDDEN, FFN, HEADS = 1024, 1024, 4096, 16
LATENT = (768, 512, 64, 32, 64)  # query, kv, nope, rope, value
STYLE = Style(kernels=Kernels(norm="native", rope="fused", glu="packed", qkv="copies", experts="grouped"))
DENSE = shape_model(Shape(layers=8, hidden=HIDDEN, heads=HEADS, ffn=FFN, vocab=1000))
SPARSE = shape_model(
    Shape(layers=8, hidden=HIDDEN, heads=HEADS, vocab=1000, experts=8, active=2, expert_ffn=512, shared_ffn=256, latent=LATENT)
)


def dropped(model: Model, *modules: str, style: Style = STYLE) -> float:
    tape = layer_tape(model.blocks[0], style, hidden=HIDDEN, tokens=TOKENS, seq=TOKENS)
    life = tape.life()
    return life.saved + life.input_saved - module_bytes(tape, modules)


def test_a_dense_mlp_leaves_its_input_alone() -> None:
    normed, packed, product, statistics = TOKENS * HIDDEN * 2, 2 * TOKENS * FFN * 2, TOKENS * FFN * 2, TOKENS * 8
    assert dropped(DENSE, "mlp") == normed + packed + product + statistics


def test_core_attention_leaves_its_output_and_drops_statistics_or_scores() -> None:
    assert dropped(DENSE, "core_attn") == TOKENS * HEADS * 4 + 24  # statistics and the random state of flash attention
    scores = TOKENS * HEADS * TOKENS * 2
    unfused = Style(kernels=Kernels(norm="native", rope="fused", glu="packed", qkv="copies", attention="unfused"))
    assert dropped(DENSE, "core_attn", style=unfused) == scores  # the probabilities, which the weighted sum saved


def test_an_experts_activation_is_made_again_before_its_matmul_needs_it() -> None:
    assert dropped(SPARSE, "moe_act") == 2 * TOKENS * 512 * 2


def test_norms_of_their_own_stand_before_latent_attention_and_before_experts() -> None:
    assert dropped(SPARSE, "layernorm") == 2 * (TOKENS * HIDDEN * 2 + TOKENS * 8)
    assert dropped(DENSE, "layernorm") == 0  # Transformer Engine's LayerNormLinear keeps its normed rows


def test_up_projections_leave_the_compressed_latents() -> None:
    q, kv, nope, rope, value = LATENT
    heads = HEADS * (2 * (nope + rope) + value)
    norms = TOKENS * (q + kv) * 2 + 2 * TOKENS * 8
    rope_rows = TOKENS * (kv + rope) * 2  # the packed projection is an input of the part
    assert dropped(SPARSE, "mla_up_proj") == TOKENS * heads * 2 + norms - rope_rows


def test_a_whole_expert_layer_drops_more_than_its_parts() -> None:
    assert dropped(SPARSE, "moe") > dropped(SPARSE, "moe_act", "shared_experts") > dropped(SPARSE, "moe_act")


@pytest.mark.parametrize("module", MODULES)
def test_a_module_never_keeps_more_than_the_layer(module: str) -> None:
    assert all(dropped(model, module) >= 0 for model in (DENSE, SPARSE))


def cost(policy: str, pp: int = 1) -> Layers:
    costs = layers_of(parse_policy(policy), stages(DENSE, Parallel(pp=pp))[0], STYLE, hidden=DENSE.hidden)
    return costs.at(Batch(tokens=TOKENS, seq=TOKENS), in_flight=pp)


def test_uniform_chunks_keep_an_input_each_and_are_alive_together() -> None:
    numbers = ("waiting", "forward", "working", "first_kept")
    assert all(getattr(cost("uniform:1"), name) == getattr(cost("full"), name) for name in numbers)
    assert cost("uniform:3").waiting == 3 * cost("uniform:1").boundary  # 3 + 3 + 2 layers
    layer = (cost("none").waiting - cost("none").boundary) / 8
    assert cost("uniform:4").working - cost("uniform:1").working == pytest.approx(3 * layer)


def test_block_recomputes_the_first_layers_of_each_stage() -> None:
    boundary = cost("full").boundary
    layer = (cost("none").waiting - boundary) / 8
    assert cost("block:3").waiting == pytest.approx(3 * boundary + 5 * layer)
    assert cost("block:3", pp=2).waiting == pytest.approx(2 * (3 * boundary + layer))  # two passes in flight
    assert cost("block:99").waiting == cost("full").waiting
