"""An encoder and a decoder of other classes, joined: TrOCR, Donut, captions, as transformers 5.23 builds them.

Of 120 combinations of 15 encoders and 8 decoders, held once against the classes, none differed; a few of them stand here.
"""

from typing import Any

import pytest

from vramcast.errors import UnmodelledError
from vramcast.models.families import read_config

VIT = {"model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
VIT |= {"image_size": 224, "patch_size": 16}
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
SWIN: dict[str, Any] = {
    "model_type": "donut-swin", "depths": [2, 2, 14, 2], "embed_dim": 128, "num_heads": [4, 8, 16, 32], "window_size": 10,
    "image_size": [960, 720], "patch_size": 4, "mlp_ratio": 4.0, "qkv_bias": True,
}  # fmt: skip
MBART: dict[str, Any] = {
    "model_type": "mbart", "d_model": 1024, "decoder_layers": 4, "decoder_ffn_dim": 4096, "decoder_attention_heads": 16,
    "encoder_layers": 12, "encoder_ffn_dim": 4096, "encoder_attention_heads": 16, "vocab_size": 57533,
    "max_position_embeddings": 1536, "add_final_layer_norm": True,
}  # fmt: skip
BERT = {"model_type": "bert", "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 2048}
BERT |= {"vocab_size": 30522}


def joined(encoder: dict[str, Any], decoder: dict[str, Any]) -> dict[str, Any]:
    return {
        "model_type": "vision-encoder-decoder",
        "architectures": ["VisionEncoderDecoderModel"],
        "encoder": encoder,
        "decoder": {**decoder, "is_decoder": True, "add_cross_attention": True},
    }


def test_captions_and_documents_as_transformers_builds_them() -> None:
    assert read_config(joined(VIT, GPT2)).parameters == 239_195_904
    assert read_config(joined(SWIN, MBART)).parameters == 201_860_216


def test_widths_that_differ_are_projected() -> None:
    alone = read_config({**BERT, "architectures": ["BertLMHeadModel"]}).parameters
    seen = read_config({**VIT, "architectures": ["ViTModel"]}).parameters
    crossed = 6 * (4 * 512 * 512 + 4 * 512 + 2 * 512)
    model = read_config(joined(VIT, BERT))
    assert model.parameters == alone + seen + crossed + 768 * 512 + 512
    assert model.blocks[0].cross is not None and [t.name for t in model.towers] == ["encoder."]


def test_other_types_are_refused_by_name() -> None:
    with pytest.raises(UnmodelledError, match="encoder of model_type 'resnet' has no rule; known are vit, deit"):
        read_config(joined({**VIT, "model_type": "resnet"}, GPT2))
