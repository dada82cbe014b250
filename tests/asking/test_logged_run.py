"""A log's run is asked again by itself, and ends in one corrected line that fits."""

import json
from pathlib import Path

import pytest

from vramcast.asking.logged_run import asked_again
from vramcast.cli import run
from vramcast.reading.serving.log import launch_in_log

CONFIG = (
    "INFO [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='Qwen/Qwen3-32B-AWQ', speculative_config=None, "
    "dtype=torch.float16, max_seq_len=40960, download_dir=None, tensor_parallel_size=1, "
    "quantization=awq_marlin, kv_cache_dtype=auto\n"
)
ERROR = (
    "ValueError: To serve at least one request with the models's max seq len (40960), (10.00 GiB KV cache is needed, which is "
    "larger than the available KV cache memory (2.02 GiB). Based on the available memory, the estimated "
    "maximum model length is 8256.\n"
)


def test_the_configuration_line_is_a_launch() -> None:
    found = launch_in_log(CONFIG + ERROR)
    assert found is not None
    assert (found.engine, found.version, found.model) == ("vllm", "0.11.0", "Qwen/Qwen3-32B-AWQ")
    assert "--max-model-len=40960" in found.flags and "--dtype=float16" in found.flags
    assert not any("kv-cache" in flag for flag in found.flags)


@pytest.mark.parametrize(
    ("text", "model", "flags"),
    [
        (
            "args: non-default args: {'model_tag': 'm/x', 'max_model_len': 4096, 'gpu_memory_utilization': 0.95, 'port': 1}",
            "m/x",
            ("--max-model-len=4096", "--gpu-memory-utilization=0.95"),
        ),
        (
            "[t] server_args=ServerArgs(model_path='m/y', tp_size=2, mem_fraction_static=0.8)",
            "m/y",
            ("--tp-size=2", "--mem-fraction-static=0.8"),
        ),
        ("user@box:~$ vllm serve m/z --max-model-len 99\nINFO starting", "m/z", ("--max-model-len", "99")),
    ],
)
def test_other_lines(text: str, model: str, flags: tuple[str, ...]) -> None:
    found = launch_in_log(text)
    assert found is not None
    assert (found.model, found.flags) == (model, flags)


def test_the_corrected_line_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(CONFIG + ERROR)
    assert run(["explain", str(log), "--gpu", "4090", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["asked_again"]
    assert again["fit"]["verdict"] == "no"
    corrected = again["corrected"]
    assert corrected.startswith("vllm serve Qwen/Qwen3-32B-AWQ ")
    assert run(["serve", corrected, "--gpu", "4090", "--engine", "vllm==0.11.0"]) == 0
    assert "FITS" in capsys.readouterr().out


def test_a_log_without_card_or_model_is_explained_without_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked_again(CONFIG) is None
    assert asked_again(ERROR, gpu="4090") is None
    log = tmp_path / "vllm.log"
    log.write_text(ERROR)
    assert run(["explain", str(log)]) == 0
    assert "asked again" not in capsys.readouterr().out


STARTED = (
    "INFO [core.py:77] Initializing a V1 LLM engine (v0.19.0) with config: model='Qwen/Qwen2.5-7B-Instruct', "
    "dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=1\n"
    "INFO non-default args: {'model': 'Qwen/Qwen2.5-7B-Instruct', 'max_model_len': 8192, 'gpu_memory_utilization': 0.95, "
    "'max_num_batched_tokens': 8192, 'max_num_seqs': 1024}\n"
    "INFO Model loading took 14.25 GiB and 3.1 seconds\n"
    "INFO Available KV cache memory: 58.53 GiB\n"
    "INFO GPU KV cache size: 1,095,952 tokens\n"
)


def test_what_a_log_printed_stands_beside_the_forecast_and_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, cases = tmp_path / "vllm.log", tmp_path / "runs.jsonl"
    log.write_text(STARTED)
    assert run(["explain", str(log), "--gpu", "H100", "--cases", str(cases), "--json"]) == 0
    beside = {row["measure"]: row for row in json.loads(capsys.readouterr().out)["asked_again"]["beside"]}
    assert set(beside) == {"weights", "kv_pool", "cache_tokens"}
    for row in beside.values():
        assert row["forecast"] == pytest.approx(row["measured"], rel=0.005)
    assert run(["explain", str(log), "--gpu", "H100"]) == 0
    assert "room for the cache" in capsys.readouterr().out
    assert run(["evaluate", str(cases), "--json"]) == 0
    scored = json.loads(capsys.readouterr().out)
    assert scored["expressed"] == 1
    assert {m["measure"] for m in scored["measures"]} == {"weights", "kv_pool"}


def test_no_case_without_a_run_or_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, cases = tmp_path / "vllm.log", str(tmp_path / "runs.jsonl")
    log.write_text(STARTED)
    assert run(["explain", str(log), "--cases", cases]) == 2
    assert "add --gpu NAME" in capsys.readouterr().err
    log.write_text(CONFIG + ERROR)
    assert run(["explain", str(log), "--gpu", "4090", "--cases", cases]) == 2
    assert "no case in it" in capsys.readouterr().err
    assert run(["explain", str(log), "--gpu", "4090", "--cases", str(tmp_path)]) == 2
    log.write_text(STARTED)
    assert run(["explain", str(log), "--gpu", "H100", "--cases", str(tmp_path)]) == 2
    assert "cannot write" in capsys.readouterr().err
    assert not (tmp_path / "runs.jsonl").exists()
