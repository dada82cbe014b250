"""FLOPs of an MLP and of a mixture equal two for each weight that a token meets."""

import pytest

from vramcast.models.families import read_config
from vramcast.models.layers import Dense, Experts

QWEN3_30B = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_hidden_layers": 48,
    "vocab_size": 151936, "tie_word_embeddings": False,
}  # fmt: skip


def test_gated_and_plain() -> None:
    assert Dense(intermediate=14336).flops(4096) == 2 * 3 * 4096 * 14336
    assert Dense(intermediate=3072, gated=False).flops(768) == 2 * 2 * 768 * 3072


def test_a_mixture_counts_the_chosen_the_shared_and_the_router() -> None:
    kind = Experts(routed=256, active=8, intermediate=2048, shared_intermediate=2048)
    assert kind.flops(7168) == 2 * (3 * 9 * 2048 * 7168 + 256 * 7168)


def test_a_block_multiplies_what_its_kinds_say() -> None:
    block = read_config(QWEN3_30B).blocks[0]
    projections = 2 * 2048 * 128 * (32 + 4 + 4 + 32)
    assert block.matmul_flops == projections + block.feedforward.flops(2048)


def test_active_parameters_of_a_mixture() -> None:
    model = read_config(QWEN3_30B)
    assert (model.parameters, model.active_parameters) == (30_532_122_624, 3_353_032_704)
    assert model.matmul_flops == pytest.approx(2 * (model.active_parameters - model.vocab * model.hidden), rel=1e-3)
