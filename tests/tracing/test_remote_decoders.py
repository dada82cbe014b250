"""Models whose class is code beside their weights: a decoder of the same parameters stands for them, or they are refused."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from small_scripts import trace_without_hub

from vramcast import read_model
from vramcast.tracing.published.remote_classes import remote_config
from vramcast.tracing.published.tokenizers import special_tokens

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

_SCRIPT = """
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
name = {name!r}
tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=True)
assert AutoConfig.from_pretrained(name, trust_remote_code=True).hidden_size == {hidden}
model = AutoModelForCausalLM.from_pretrained(name, trust_remote_code=True, torch_dtype=torch.bfloat16).cuda()
assert sum(each.numel() for each in model.parameters()) == {parameters}
model.gradient_checkpointing_enable()
model.train()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
tokens = torch.ones(1, 64, dtype=torch.long, device="cuda")
for _ in range(2):
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
assert "{layer}" in {{type(each).__name__ for each in model.modules()}}
assert "{weight}" in dict(model.named_parameters())
"""


@pytest.mark.parametrize(
    ("name", "layer", "weight"),
    [
        ("Qwen/Qwen-1_8B", "QWenBlock", "transformer.h.3.attn.c_attn.bias"),
        ("THUDM/chatglm2-6b", "GLMBlock", "transformer.encoder.layers.0.mlp.dense_h_to_4h.weight"),
    ],
)
def test_a_decoder_has_the_parameters_of_the_model_it_stands_for(tmp_path: Path, name: str, layer: str, weight: str) -> None:
    if find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    model = read_model(name)
    script = _SCRIPT.format(name=name, hidden=model.hidden, parameters=model.parameters, layer=layer, weight=weight)
    result = trace_without_hub(tmp_path, script).result
    assert (result.error, result.steps) == ("", 2)
    assert any(note.startswith(f"{name}'s class is code of its repository") for note in result.notes)


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
