"""The tracer: real transformers models on fake tensors, in a process of its own, against exact identities."""

from pathlib import Path

import pytest

from vramcast.errors import QuestionError
from vramcast.tracing.allocator.replay import replay
from vramcast.tracing.request import ScriptRequest, TraceRequest, TraceResult
from vramcast.tracing.run import Tracer, trace_script

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("transformers")

H, FF, HEADS, KV, SEQ, LAYERS, VOCAB = 256, 704, 4, 128, 512, 2, 1024
LLAMA = {
    "model_type": "llama", "hidden_size": H, "intermediate_size": FF, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "num_key_value_heads": KV * HEADS // H, "vocab_size": VOCAB,
}  # fmt: skip


def _saved_per_layer(result: TraceResult) -> int:
    """Bytes that the second layer keeps from forward to backward in the last step."""
    start = max(m.place for m in result.log.marks if m.name == "backward")
    alive = result.log.alive_at(start)
    return sum(a.size for a in alive if a.phase == "forward" and ".layers.1" in a.module and a.category == "")


@pytest.mark.parametrize("backend", ["cuda", "meta"])
def test_a_llama_layer_saves_exactly_what_its_formula_says(backend: str, tracer: Tracer) -> None:
    result = tracer.trace(TraceRequest(config=LLAMA, seq=SEQ, backend=backend))
    assert (result.error, result.backend, result.steps) == ("", backend, 2)
    flash_random_state = 24
    norms_attention_mlp = 20 * SEQ * H + 4 * SEQ * KV + 8 * SEQ * FF + 8 * SEQ + 4 * SEQ * HEADS
    assert _saved_per_layer(result) == norms_attention_mlp + flash_random_state
    by_category = {
        c: sum(a.size for a in result.log.allocations if a.category == c and a.end < 0) for c in ("weights", "optimizer")
    }
    rotary = (H // HEADS // 2) * 4 * 2  # inv_freq and its original
    assert by_category["weights"] == 2 * result.parameters + rotary
    assert by_category["optimizer"] >= 2 * 2 * result.parameters
    assert replay(result.log).peak_allocated_bytes >= 3 * 2 * result.parameters


@pytest.mark.parametrize(("asked", "each"), [("float32", 4), ("bfloat16", 2)])
def test_the_type_asked_for_wins_over_the_one_that_the_config_states(asked: str, each: int, tracer: Tracer) -> None:
    stated = {**LLAMA, "torch_dtype": "bfloat16" if asked == "float32" else "float32"}
    result = tracer.trace(TraceRequest(config=stated, seq=64, param_dtype=asked))
    weights = sum(a.size for a in result.log.allocations if a.category == "weights" and a.end < 0)
    rotary = (H // HEADS // 2) * 4 * 2
    assert weights == each * result.parameters + rotary


def test_qlora_checkpointing_and_a_chosen_attention_kernel_change_what_is_held(tracer: Tracer) -> None:
    from vramcast.workload import Adapter

    pytest.importorskip("bitsandbytes")
    result = tracer.trace(
        TraceRequest(
            config=LLAMA, seq=SEQ, checkpointing="full", adapter=Adapter(rank=4), quant="nf4", attention_kernels=("math",),
            autocast="bfloat16", clip_norm=1.0, accumulate=2, optimizer="paged_adamw_8bit",
        )
    )  # fmt: skip
    assert result.error == ""
    assert set(result.attention) == {"math"}
    assert 0 < result.trainable < result.parameters / 10
    assert any(a.phase == "recompute" and a.size >= 2 * HEADS * SEQ * SEQ for a in result.log.allocations)
    assert _saved_per_layer(result) < 2 * SEQ * H * 4
    weights = sum(a.size for a in result.log.allocations if a.category == "weights" and a.end < 0)
    widened = 4 * 2 * VOCAB * H  # PEFT turns what is not quantised, the embedding and the head, into fp32
    assert widened < weights < widened + result.parameters


def test_generation_grows_a_cache_and_keeps_no_activations(tracer: Tracer) -> None:
    result = tracer.trace(TraceRequest(config=LLAMA, task="generate", seq=SEQ, new_tokens=3))
    assert result.error == ""
    alive = [a for a in result.log.allocations if a.category == "" and a.end < 0 and a.size > 4096]
    assert sum(a.size for a in alive) <= 2 * 2 * LAYERS * KV * (SEQ + 3) * 2


def test_generation_of_a_state_space_model_keeps_a_state_of_one_size(tracer: Tracer) -> None:
    mamba = {
        "model_type": "mamba2", "hidden_size": H, "num_heads": 8, "head_dim": 64, "n_groups": 1, "state_size": 16,
        "num_hidden_layers": LAYERS, "vocab_size": VOCAB,
    }  # fmt: skip
    kept = []
    for seq in (SEQ, 2 * SEQ):
        result = tracer.trace(TraceRequest(config=mamba, task="generate", seq=seq, new_tokens=2, backend="cuda"))
        assert result.error == ""
        kept.append(sum(a.size for a in result.log.allocations if a.category == "" and a.end < 0 and a.phase != "setup"))
    assert kept[0] == kept[1] > 0


def test_a_model_that_transformers_does_not_know_is_refused(tracer: Tracer) -> None:
    with pytest.raises(QuestionError, match="unknown model_type 'lama': did you mean llama"):
        tracer.trace(TraceRequest(config={"model_type": "lama"}))


SCRIPT = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
assert torch.cuda.is_available()
for step in range(1_000_000):
    x = torch.randn(64, 512, device="cuda")
    loss = model(x).square().mean()
    loss.backward()
    if step == 0:
        print(loss.item())
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_users_own_script_is_traced_for_two_steps(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    result = trace_script(ScriptRequest(argv=(str(script),)))
    assert (result.error, result.steps) == ("", 2)
    weights = 4 * (2 * 512 * 2048 + 512 + 2048)
    assert replay(result.log).peak_requested_bytes > 4 * weights
    assert any(a.line.endswith("train.py:9") for a in result.log.allocations)


def test_a_script_that_fails_is_reported_with_its_line_and_what_was_traced(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nx = torch.zeros(1000, device='cuda')\nraise ValueError('no data here')\n")
    result = trace_script(ScriptRequest(argv=(str(script),)))
    assert result.error.startswith("ValueError: no data here at ")
    assert result.error.endswith("train.py:3")
    assert sum(a.size for a in result.log.allocations) == 4000
    assert result.notes == ("the script made no optimizer step: the peak is of what ran before",)


def test_a_script_that_never_ends_is_stopped_where_it_stands(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nx = torch.zeros(1000, device='cuda')\nwhile not (x > 1).any().item():\n    pass\n")
    result = trace_script(ScriptRequest(argv=(str(script),)), timeout_s=3)
    assert result.error.startswith("OutOfTimeError: stopped after 3 s at ")
    assert result.error.endswith("train.py:3")
    assert max(a.size for a in result.log.allocations) == 4000


VALUES = """
import numpy, torch
model = torch.nn.Linear(512, 512)
torch.save({"epoch": torch.tensor(3), "scale": torch.ones(64)}, "state.pt")
state = torch.load("state.pt", map_location="cuda")
assert (int(state["epoch"]), state["scale"].device.type) == (3, "cuda")
model.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = torch.compile(lambda x: model(x).square().mean())
lengths = torch.tensor([3, 5], device="cuda")
assert torch.randn(2, 7, device="cuda")[lengths > 3].shape == (1, 7)
assert lengths.cpu().numpy().tolist() == [3, 5]
while True:
    loss = step(torch.randn(8, 512, device="cuda"))
    loss.backward()
    assert numpy.isfinite(loss.detach().cpu().numpy())
    optimizer.step()
    torch.save({"model": model.state_dict()}, "trained.pt")
"""


def test_a_script_that_wants_values_and_writes_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(VALUES)
    result = trace_script(ScriptRequest(argv=("train.py",)))
    assert (result.error, result.steps) == ("", 2)
    assert {Path(name).name for name, _ in result.written} == {"state.pt", "trained.pt"}
    assert not Path("state.pt").exists() and not Path("trained.pt").exists()
    assert result.guessed == {"numpy() in the program": 2}
    told = "torch.compile was asked for: <lambda> was traced without it, a compiled step allocates differently"
    assert result.notes == (told,)


STEPS_IN_BACKWARD = """
import torch
from flash_attn import flash_attn_func
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inward, self.outward = torch.nn.Linear(512, 1536), torch.nn.Linear(512, 512)
    def forward(self, x):
        q, k, v = self.inward(x).unflatten(-1, (3, 8, 64)).unbind(2)
        return self.outward(flash_attn_func(q, k, v, causal=True).flatten(2))
model = torch.nn.Sequential(Block(), Block()).to("cuda", torch.bfloat16)
own = {p: torch.optim.AdamW([p], foreach=False) for p in model.parameters()}
def step(p):
    own[p].step()
    own[p].zero_grad()
for p in model.parameters():
    p.register_post_accumulate_grad_hook(step)
while True:
    model(torch.randn(4, 256, 512, device="cuda", dtype=torch.bfloat16)).square().mean().backward()
"""


def test_flash_attention_by_name_and_an_optimizer_per_parameter(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(STEPS_IN_BACKWARD)
    result = trace_script(ScriptRequest(argv=(str(script),)))
    assert (result.error, result.steps) == ("", 2)
    weights = 2 * 2 * (4 * 512 * 512 + 4 * 512)
    alive = [a for a in result.log.allocations if a.category == "optimizer" and a.end < 0]
    assert 2 * weights <= sum(a.size for a in alive) < 2 * weights + 1024
    left = sum(a.size for a in result.log.allocations if a.phase == "backward" and a.end < 0 and a.category == "")
    assert left < weights / 2  # each gradient goes when its parameter has stepped
    kept = [a for a in result.log.allocations if a.op.startswith("aten._flash_attention_forward")]
    assert {a.size for a in kept} >= {4 * 256 * 512 * 2, 4 * 8 * 256 * 4}  # the output and its logarithms
