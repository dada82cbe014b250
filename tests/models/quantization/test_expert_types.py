"""Experts stored in another type than the rest, named by a key of their own."""

import pytest

from vramcast.models.quantization import scheme_for, weight_bytes
from vramcast.models.reading import read_model
from vramcast.units import GiB


def test_deepseek_v4_stores_its_experts_in_four_bits() -> None:
    """deepseek-ai/DeepSeek-V4-Flash: "FP4 + FP8 mixed", 160 GB of files with the draft layer (its model card)."""
    model = read_model("deepseek-ai/DeepSeek-V4-Flash")
    scheme = scheme_for(model)
    assert scheme.name == "fp8-128x128+mxfp4-experts"
    assert weight_bytes(model, scheme) / GiB == pytest.approx(145.3, abs=0.1)
    assert weight_bytes(model, scheme, stored=True) == pytest.approx(160e9, rel=0.01)


def test_deepseek_v4_leaves_what_compresses_in_sixteen_bits() -> None:
    """deepseek-ai/DeepSeek-V4-Flash-Base: 294.7 GB of files; 2.1 of them are the draft's own embedding and head in 16 bits."""
    model = read_model("deepseek-ai/DeepSeek-V4-Flash-Base")
    ends = 2 * 129_280 * 4096 * 2
    assert weight_bytes(model, scheme_for(model), stored=True) + ends == pytest.approx(294.7e9, abs=0.1e9)
    scheme = scheme_for(model)
    kept = {t.name for b in model.blocks for t in b.tensors if len(t.shape) == 2 and scheme.format_of(t).name == "bfloat16"}
    assert {"attn.compressor.wkv.weight", "attn.indexer.weights_proj.weight"} <= kept
    assert "attn.wkv.weight" not in kept


def test_a_checkpoint_that_was_quantised_again_keeps_its_own_scheme() -> None:
    """NVIDIA's copy still carries ``expert_dtype`` in its config; its quantization_config decides."""
    assert scheme_for(read_model("nvidia/DeepSeek-V4-Flash-NVFP4")).name == "fp8-128x128+nvfp4-experts"
    assert scheme_for(read_model("sgl-project/DeepSeek-V4-Flash-FP8")).name == "fp8-128x128"
