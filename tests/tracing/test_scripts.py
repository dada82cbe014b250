"""Users' scripts under the tracer: where weights stand, what libraries do to parameters, and reports of what cannot go on."""

import re
from pathlib import Path

import pytest

from vramcast.tracing.request import ScriptRequest, TraceResult
from vramcast.tracing.run import trace_script

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("transformers")


def _traced(folder: Path, text: str, **options: int) -> TraceResult:
    script = folder / "train.py"
    script.write_text(text)
    return trace_script(ScriptRequest(argv=(str(script),), **options))


FUSED_LOSS = """
import torch
class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().mean()
    @staticmethod
    def backward(ctx, gradient):
        one = torch.tensor(1.0, device=gradient.device)
        assert one.device.type == torch.as_tensor([1.0], device="cuda").device.type == "cuda"
        return ctx.saved_tensors[0] * gradient * one
with torch.device("cuda"):
    assert torch.tensor(0).device.type == "cuda"
    model = torch.nn.Linear(512, 512)
weight = model.weight
model.weight = type(weight)(weight.data.to(torch.bfloat16), requires_grad=weight.requires_grad)
model.bias = None
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    Loss.apply(model(torch.randn(8, 512, device="cuda", dtype=torch.bfloat16))).backward()
    optimizer.step()
"""


def test_tensors_made_in_a_custom_backward_and_parameters_made_by_their_class(tmp_path: Path) -> None:
    result = _traced(tmp_path, FUSED_LOSS)
    assert (result.error, result.steps) == ("", 2)
    gradient = [a for a in result.log.allocations if a.category == "gradients"]
    assert {a.size for a in gradient} == {2 * 512 * 512}


LOADED = """
import torch
from transformers import AutoModelForCausalLM, LlamaConfig
LlamaConfig(
    hidden_size=256, intermediate_size=512, num_hidden_layers=1, num_attention_heads=4, vocab_size=1024, tie_word_embeddings=True
).save_pretrained("model")
host = AutoModelForCausalLM.from_pretrained("model", dtype=torch.bfloat16)
assert torch.cuda.memory_allocated() == 0 and host.lm_head.weight is host.model.embed_tokens.weight
card = AutoModelForCausalLM.from_pretrained("model", dtype=torch.bfloat16, device_map="auto")
whole = torch.cuda.memory_allocated()
assert whole >= 2 * card.num_parameters()
host.to("cuda")
assert torch.cuda.memory_allocated() == 2 * whole
"""


def test_a_loaded_model_stands_on_the_host_unless_a_map_says_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert _traced(tmp_path, LOADED).error == ""


SHARDED_4_BIT = """
import os
os.environ.update(ACCELERATE_USE_FSDP="true", FSDP_CPU_RAM_EFFICIENT_LOADING="true")
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig
LlamaConfig(
    hidden_size=256, intermediate_size=512, num_hidden_layers=1, num_attention_heads=4, vocab_size=1024, tie_word_embeddings=True
).save_pretrained("model")
torch.distributed.init_process_group("nccl")
scheme = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained("model", dtype=torch.bfloat16, quantization_config=scheme)
packed = model.model.layers[0].mlp.up_proj.weight
assert (type(packed).__name__, packed.dtype, packed.device.type) == ("Params4bit", torch.bfloat16, "cpu")
assert packed.quant_state.absmax.device.type == "cuda" and packed.numel() == 256 * 512 // 4
assert {p.device.type for p in model.parameters()} == {"cpu"} and model.lm_head.weight is model.model.embed_tokens.weight
assert model.quantization_method == "bitsandbytes"
assert model.hf_quantizer.quantization_config.bnb_4bit_quant_storage == torch.bfloat16
"""


def test_a_quantised_model_waits_for_fsdp_on_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bitsandbytes")
    monkeypatch.chdir(tmp_path)
    assert _traced(tmp_path, SHARDED_4_BIT, ranks=2).error == ""


PACKED = """
import torch
from torch.utils._pytree import tree_map_only
class Packed(torch.Tensor):
    @staticmethod
    def __new__(kind, codes):
        return torch.Tensor._make_wrapper_subclass(kind, codes.shape, dtype=torch.bfloat16, device=codes.device)
    def __init__(self, codes):
        self.codes = codes
    def __tensor_flatten__(self):
        return ["codes"], None
    @classmethod
    def __torch_dispatch__(kind, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return kind(args[0].codes)
        wide = tree_map_only(kind, lambda packed: packed.codes.to(torch.bfloat16), args)
        return func(*wide, **(kwargs or {}))
with torch.device("cuda"):
    model = torch.nn.Linear(512, 512, dtype=torch.bfloat16)
    codes = torch.zeros(512, 512, dtype=torch.int8)
with torch.cuda.device(0):
    torch.utils.swap_tensors(model.weight, torch.nn.Parameter(Packed(codes), requires_grad=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(8, 512, device="cuda", dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
"""


def test_a_tensor_made_of_others_is_followed_in_its_parts(tmp_path: Path) -> None:
    result = _traced(tmp_path, PACKED)
    assert (result.error, result.steps) == ("", 2)
    weights = sum(a.size for a in result.log.allocations if a.category == "weights" and a.end < 0)
    assert weights == 512 * 512 + 2 * 512  # a byte for each element, and the bias
    widened = [a for a in result.log.allocations if a.size == 2 * 512 * 512 and a.phase == "forward"]
    assert widened and all(a.end >= 0 for a in widened)


BEGUN = "import sys, torch\nx = torch.zeros(1000, device='cuda')\n"
STOPPED = {
    "import urllib.request; urllib.request.urlopen('http://nowhere.invalid/')": (
        r"URLError: .*, called from .*train\.py:3; it asks the network: .*"
    ),
    "sys.exit('no data in ./data')": r"the script ended itself with exit code no data in ./data at .*train\.py:3",
    "input('Continue? ')": r"EOFError: the script waits for input\(\), and nobody answers in a trace at .*train\.py:3",
}


@pytest.mark.parametrize("line", STOPPED)
def test_what_stops_a_script_is_told_with_its_line_and_what_was_traced(line: str, tmp_path: Path) -> None:
    result = _traced(tmp_path, BEGUN + line)
    assert re.fullmatch(STOPPED[line], result.error)
    assert sum(a.size for a in result.log.allocations) == 4000
    assert result.notes == ("the script made no optimizer step: the peak is of what ran before",)


def test_a_script_that_ends_well_before_a_step_is_told_where(tmp_path: Path) -> None:
    result = _traced(tmp_path, BEGUN + "sys.exit()")
    assert result.error == ""
    assert result.notes[0].startswith("the script made no optimizer step")
    assert re.fullmatch(r"the script ended itself at .*train\.py:3", result.notes[1])


OUTER = """
import sys
from torch.distributed.run import get_args_parser, run
run(get_args_parser().parse_args(["--nproc_per_node", "2", "inner.py", "--batch", "8"]))
"""
INNER = """
import sys, torch
assert sys.argv == ["inner.py", "--batch", "8"]
torch.distributed.init_process_group("nccl")
assert torch.distributed.get_world_size() == 2
model = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(model.parameters())
while True:
    model(torch.randn(8, 512, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_a_program_that_launches_processes_itself_goes_on_as_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("inner.py").write_text(INNER)
    Path("outer.py").write_text(OUTER)
    result = trace_script(ScriptRequest(argv=("outer.py",), ranks=2, launched=True))
    assert (result.error, result.steps) == ("", 2)
