"""The measuring runner on a device every machine has: the same code path as on a GPU, without its counters."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import msgspec
import torch

from vramcast.cli import run
from vramcast.errors import MissingError, QuestionError, UnmodelledError
from vramcast.measuring import worker
from vramcast.measuring.bare import BareSession
from vramcast.measuring.command import measure_command
from vramcast.measuring.request import Measurement, MeasureRequest, worst_rank
from vramcast.measuring.run import need_device
from vramcast.measuring.store import Store
from vramcast.measuring.worker import measure_model
from vramcast.models.reading import read_model
from vramcast.planning.measuring import RunSettings, forecast_beside, on_cards, point_of, serving_of
from vramcast.tracing.request import TraceRequest
from vramcast.workload import Adapter, Training

pytestmark = pytest.mark.torch

SRC = str(Path(__file__).parents[2] / "src")
TINY = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
    "max_position_embeddings": 256, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TINY))
    return str(path)


def on_cpu(**changes: object) -> MeasureRequest:
    step = {"config": TINY, "seq": 16, "param_dtype": "float32"}
    own = {k: changes.pop(k) for k in list(changes) if k in MeasureRequest.__struct_fields__}
    return MeasureRequest(step=TraceRequest(**step | changes), **{"device": "cpu", "warmup": 1, "repeats": 2} | own)


def test_a_training_step() -> None:
    found = measure_model(on_cpu(micro_batch=2, accumulate=2, clip_norm=1.0, autocast="bfloat16"))
    assert found.outcome == "ran", found.message
    assert found.parameters == 2 * 64 * 256 + 64 + 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128 + 2 * 64)
    assert found.figures["step_s"] > 0
    assert found.samples["tokens_per_s"][0] * found.samples["step_s"][0] == pytest.approx(2 * 2 * 16)
    assert len(found.samples["step_s"]) == 2
    assert found.versions["torch"] == torch.__version__


@pytest.mark.filterwarnings("ignore::FutureWarning")  # PEFT reads a name that transformers has renamed
def test_four_bit_weights_are_really_quantised() -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes")
    from vramcast.measuring.repetitions import _build

    request = on_cpu(quant="nf4", adapter=Adapter(rank=4), checkpointing="full", param_dtype="bfloat16")
    model = _build(request, BareSession("cpu"))
    four_bit = [m for m in model.modules() if isinstance(m, bitsandbytes.nn.Linear4bit)]
    assert len(four_bit) == 2 * 7
    assert all(m.weight.dtype == torch.uint8 and m.weight.quant_state.nested for m in four_bit)
    assert sum(m.weight.numel() for m in four_bit) * 2 == 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128)
    assert type(model.base_model.model.lm_head) is torch.nn.Linear
    assert "bnb" in type(model.base_model.model.model.layers[0].self_attn.q_proj).__module__, "PEFT must know its 4-bit layers"
    assert measure_model(request).outcome == "ran"


def test_prompts_and_batches_are_of_many_tokens() -> None:
    session, batch = BareSession("cpu"), {"input_ids": torch.zeros(4, 64, dtype=torch.long)}
    session._vocabulary = 256
    session.label_inputs(batch)
    assert batch["input_ids"].unique().numel() > 64
    assert int(batch["input_ids"].max()) < 256


def test_generation_times() -> None:
    found = measure_model(on_cpu(task="generate", micro_batch=3, new_tokens=4))
    assert found.outcome == "ran", found.message
    ttft, tpot, run_s, rate = (found.samples[k][0] for k in ("ttft_s", "tpot_s", "run_s", "tokens_per_s"))
    assert ttft + 3 * tpot == pytest.approx(run_s)
    assert rate == pytest.approx(3 * 4 / run_s)


def test_out_of_memory_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    from vramcast.tracing.execution import steps

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\n GPU 0 has 79 GiB")

    monkeypatch.setattr(steps, "optimizer_step", full)
    found = measure_model(on_cpu())
    assert (found.outcome, found.message) == ("oom", "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 79 GiB")
    assert found.parameters > 0


def test_a_model_that_cannot_be_built_is_a_result() -> None:
    found = measure_model(on_cpu(config={**TINY, "num_attention_heads": 0}))
    assert found.outcome == "failed"
    assert found.message


def test_the_worst_rank_speaks_for_all() -> None:
    low, high = (Measurement(outcome="ran", figures={"allocated": float(n)}) for n in (1, 2))
    assert worst_rank([high, low]).figures == {"allocated": 2.0}
    assert worst_rank([high, low]).ranks == [{"allocated": 2.0}, {"allocated": 1.0}]
    assert worst_rank([high, Measurement(outcome="oom")]).outcome == "oom"


def test_copies_and_shards_are_launched_as_such(tiny: str) -> None:
    model, how = read_model(tiny), RunSettings(device="cpu")
    question = Training(model=tiny, framework="pytorch", seq=16)
    copies = point_of(on_cards(question, None, 4), model, how=how).request
    assert (copies.ranks, copies.step.distribution.sharding) == (4, "ddp")
    sharded = point_of(on_cards(msgspec.structs.replace(question, fsdp=2), None, 4), model, how=how).request
    assert (sharded.ranks, sharded.step.distribution.sharding, sharded.step.distribution.parallel.shards) == (4, "fsdp2", 4)
    compiled = point_of(msgspec.structs.replace(question, compile=True), model, how=how).request
    assert compiled.compiled
    with pytest.raises(UnmodelledError, match="measure your own script after --"):
        point_of(msgspec.structs.replace(question, method="lisa"), model, how=how)


def test_generation_stands_beside_the_forecast_of_transformers(tiny: str) -> None:
    serving = serving_of(Training(model=tiny, micro_batch=2, seq=100), 28)
    assert (serving.engine, serving.context, serving.concurrency) == ("transformers", 128, 2)
    said = forecast_beside(serving, read_model(tiny), None)
    weights = 106_816 * 4
    assert said["allocated_bytes"] > weights


def test_two_ranks_train_together(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["measure", tiny, "--device", "cpu", "--seq", "16", "--warmup", "1", "--repeats", "1", "--fsdp", "--gpus", "2"]
    assert run([*asked, "--timeout", "600", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)["measured"]
    assert measured["outcome"] == "ran", measured
    assert len(measured["ranks"]) == 2


# The command line, which waits for its end where it has kept its first case: the kill falls in the middle of the sweep.
_WAITING_AFTER_A_CASE = """
import signal, sys
from vramcast.measuring.store import Store
keep = Store.put
def put(store, key, case):
    keep(store, key, case)
    print("kept", flush=True)
    signal.pause()
Store.put = put
from vramcast.cli import run
run(sys.argv[1:])
"""


def test_a_killed_sweep_is_resumed_not_repeated(tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "runs.sqlite"
    sweep = ["measure", tiny, "--device", "cpu", "--seq", "16", "--warmup", "1", "--repeats", "1", "--method", "lora"]
    sweep += ["--sweep", "rank=2", "micro_batch=1,2", "--store", str(store), "--json"]
    child = subprocess.Popen(
        [sys.executable, "-c", _WAITING_AFTER_A_CASE, *sweep], env={**os.environ, "PYTHONPATH": SRC}, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None and child.stdout.readline() == b"kept\n", "no case was finished"
        child.send_signal(signal.SIGKILL)
    kept = {case.id: case.figures for case in Store(store).cases()}
    assert len(kept) == 1
    exported = tmp_path / "runs.jsonl"
    assert run([*sweep, "--export", str(exported)]) == 0
    rows = json.loads(capsys.readouterr().out)["sweep"]
    assert [(r["rank"], r["micro_batch"]) for r in rows] == [(2, 1), (2, 2)]
    assert rows[0]["figures"] == next(iter(kept.values())), "finished cases come from the store"
    assert len(exported.read_bytes().splitlines()) == 2


def test_a_worker_ends_with_its_parent(tmp_path) -> None:
    folder = tmp_path / "vramcast-measure-x"
    folder.mkdir()
    reading, writing = os.pipe()
    program = (
        f"import os, time; os.dup2({reading}, 0)\nfrom vramcast.children import end_with_parent\n"
        f"end_with_parent(0, {str(folder)!r})\ntime.sleep(600)"
    )
    env = {**os.environ, "PYTHONPATH": SRC}
    follower = subprocess.Popen([sys.executable, "-c", program], pass_fds=[reading], env=env, start_new_session=True)
    os.close(reading)
    os.write(writing, b"..")
    time.sleep(0.3)
    assert follower.poll() is None, "bytes for other ranks are not the end"
    os.close(writing)
    assert follower.wait(120) == -signal.SIGKILL
    assert not folder.exists()


SCRIPT = """
import sys, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
print(sys.argv[1:])
if sys.argv[-1] == "--oom":
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
"""


def test_a_command_gets_its_words_as_typed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    words = ["--seq", "a b", "--json", "--", "--oom"]
    assert run(["measure", "--json", "--", sys.executable, "-u", str(script), *words]) == 1
    out, err = capfd.readouterr()
    measured = json.loads(out)["measured"]
    assert measured["outcome"] == "oom"
    assert measured["message"] == "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB at train.py:10"
    assert measured["figures"]["optimizer_steps"] == 4
    assert measured["figures"]["step_s"] > 0
    assert measured["versions"]["torch"] == torch.__version__
    assert str(words) in err, "what the command prints is shown, and not among our answer"


def test_a_command_without_torch_and_one_that_is_none(tmp_path: Path) -> None:
    quiet = measure_command((sys.executable, "-c", "pass"))
    assert (quiet.outcome, "no process of the command used torch" in quiet.message) == ("ran", True)
    ended = measure_command((sys.executable, "-c", "raise SystemExit(7)"))
    assert (ended.outcome, ended.message) == ("failed", "the command ended with code 7")
    slow = measure_command((sys.executable, "-c", "import time; time.sleep(60)"), timeout_s=0.5)
    assert "stopped after 0 s" in slow.message
    with pytest.raises(QuestionError, match="there is no program 'train-yaml' to measure"):
        measure_command(("train-yaml",))


def test_without_a_gpu_the_message_says_what_needs_none() -> None:
    if torch.cuda.is_available():
        pytest.skip("a CUDA device answers here")
    with pytest.raises(MissingError, match="vramcast trace needs none"):
        need_device("cuda")


def test_a_worker_that_is_never_asked_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "read", lambda *_: b"")
    assert worker.main(str(tmp_path)) == 1


def test_a_launcher_is_no_rank(tmp_path: Path) -> None:
    from vramcast.measuring.command import _result

    for rank, steps in enumerate((0.0, 4.0, 4.0)):
        left = {"outcome": "ran", "rank": rank, "figures": {"optimizer_steps": steps}, "versions": {}}
        (tmp_path / f"result.{rank}").write_text(json.dumps(left))
    found = _result(tmp_path, "", ran=True, run_s=9.0)
    assert [figures["optimizer_steps"] for figures in found.ranks] == [4.0, 4.0]
    assert found.figures["run_s"] == 9.0
