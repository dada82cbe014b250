"""A log's run is asked again by itself, and ends in one corrected line that fits."""

import json
from pathlib import Path

import pytest

from vramcast.asking.again import asked_again
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
