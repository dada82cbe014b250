"""Models whose class is code beside their weights: a decoder of the same parameters stands for them, or they are refused."""

import pytest

from vramcast import read_model
from vramcast.tracing.published.remote_classes import remote_config
from vramcast.tracing.published.tokenizers import special_tokens

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from vramcast.tracing.execution.stand_ins import remote_decoders  # noqa: E402


@pytest.mark.parametrize(
    ("name", "layer", "weight", "logits"),
    [
        ("Qwen/Qwen-1_8B", "QWenBlock", "transformer.h.3.attn.c_attn.bias", torch.bfloat16),
        ("THUDM/chatglm2-6b", "GLMBlock", "transformer.encoder.layers.0.mlp.dense_h_to_4h.weight", torch.float32),
        ("baichuan-inc/Baichuan2-7B-Base", "DecoderLayer", "model.layers.0.self_attn.W_pack.weight", torch.bfloat16),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_decoder_has_the_parameters_of_the_model_it_stands_for(name: str, layer: str, weight: str, logits: torch.dtype) -> None:
    pytest.importorskip("transformers")
    model, config, told = read_model(name), remote_config(name), list[str]()
    assert config is not None
    owner = remote_decoders._model_class()
    owner.tell = told.append
    with torch.device("meta"):
        made = owner(remote_decoders._config_class()(**config)).to(torch.bfloat16)
        tokens = torch.ones(1, 64, dtype=torch.long)
    made.gradient_checkpointing_enable()
    answer = made.train()(input_ids=tokens, labels=tokens)
    answer.loss.backward()
    assert sum(each.numel() for each in made.parameters()) == model.parameters
    assert layer in {type(each).__name__ for each in made.modules()}
    assert dict(made.named_parameters())[weight].grad is not None
    assert answer.logits.dtype == answer.loss.dtype == logits
    assert told[0].startswith(f"{name}'s class is code of its repository")


@pytest.mark.parametrize(
    "name",
    ["Qwen/Qwen-VL-Chat", "baichuan-inc/Baichuan2-13B-Chat", "deepseek-ai/deepseek-moe-16b-base", "Qwen/Qwen-7B-Chat-Int4"],
)
def test_what_a_usual_decoder_is_not_has_none(name: str) -> None:
    assert read_model(name).parameters > 0
    assert remote_config(name) is None


def test_baichuans_padding_is_its_unknown_token() -> None:
    special = special_tokens(remote_config("baichuan-inc/Baichuan2-7B-Base") or {})
    assert (special["pad"], special["unk"], special["bos"], special["eos"]) == (0, 0, 1, 2)
