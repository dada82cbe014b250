"""Engines' messages as people posted them: the moment, the numbers, and what follows from them."""

import json
from pathlib import Path

import pytest

from vramcast.cli import run
from vramcast.reading.engine_messages import Finding, read_engine_messages
from vramcast.units import GiB, MiB


def figures(finding: Finding) -> dict[str, float]:
    return {f.name.split(",")[0].split(" (")[0]: f.value for f in finding.figures}


def only(text: str) -> Finding:
    (finding,) = read_engine_messages(text)
    return finding


def test_v0_names_the_tokens_that_fit() -> None:
    found = only(
        "The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache (7344)."
    )
    assert (found.engine, figures(found)) == ("vllm", {"asked for": 32768, "the cache holds": 7344})
    assert found.advice[0].startswith("--max-model-len 7344")


@pytest.mark.parametrize(
    ("asked", "needed", "held", "printed"),
    [(262144, "24.0", "3.18", 34736), (221000, "10.12", "5.59", 122080)],
)
def test_v1_sizes_give_the_length_that_vllm_itself_prints(asked: int, needed: str, held: str, printed: int) -> None:
    said = (
        f"To serve at least one request with the models's max seq len ({asked}), ({needed} GiB KV cache is needed, which is "
        f"larger than the available KV cache memory ({held} GiB)."
    )
    found = figures(only(said))
    assert found["per token"] == pytest.approx(float(needed) * GiB / asked, rel=1e-6)
    assert found["longest sequence that fits"] == pytest.approx(printed, rel=0.001)
    told = only(f"{said} Based on the available memory, the estimated maximum model length is {printed}.")
    assert figures(told)["longest sequence that fits"] == printed


def test_two_lines_of_one_failure_are_one_finding() -> None:
    found = only("Available KV cache memory: -2.77 GiB ... ValueError: No available memory for the cache blocks.")
    assert found.failed and figures(found)["cache available"] == round(-2.77 * GiB)


def test_free_memory_at_the_start_gives_the_share_that_starts() -> None:
    found = only(
        "Free memory on device (20.1/23.5 GiB) on startup is less than desired GPU memory utilization (0.92, 21.6 GiB). Decrease"
    )
    assert figures(found)["held by others"] == round(23.5 * GiB) - round(20.1 * GiB)
    assert any("--gpu-memory-utilization 0.85" in advice for advice in found.advice)


def test_what_a_healthy_start_prints_is_reported_and_no_failure() -> None:
    log = "Model loading took 14.25 GiB and 3.2 s\nAvailable KV cache memory: 6.02 GiB\nGPU KV cache size: 112,704 tokens"
    found = read_engine_messages(log)
    assert [(f.failed, f.figures[0].value) for f in found] == [
        (False, round(14.25 * GiB)),
        (False, round(6.02 * GiB)),
        (False, 112704),
    ]


def test_sglang_raises_the_fraction_for_one_failure_and_lowers_it_for_the_other() -> None:
    start = only("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.")
    graphs = only("Capture cuda graph failed: CUDA out of memory. Tried to allocate 448.00 MiB. GPU 7 has a total capacity")
    assert start.advice[0].startswith("raise --mem-fraction-static")
    assert graphs.advice[0].startswith("lower --mem-fraction-static")
    assert graphs.figures[0].value == 448 * MiB


@pytest.mark.parametrize(
    ("after", "kind"),
    [
        ("alloc_tensor_range: failed llama_model_load: error loading model: unable to allocate CUDA0 buffer", "model buffer"),
        ("llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache", "KV buffer"),
        ("graph_reserve: failed to allocate compute buffers", "compute buffer"),
        ("failed to allocate compute pp buffers", "compute buffer"),
        ("", "buffer"),
    ],
)
def test_llama_cpp_says_in_a_later_line_which_buffer_it_was(after: str, kind: str) -> None:
    start = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 14136.04 MiB on device 1: cudaMalloc failed: out of memory"
    found = only(f"{start} {after}")
    assert found.what == f"the {kind} does not fit on device 1"
    assert found.figures[0].value == round(14136.04 * MiB)


def test_tensorrt_llm_tells_what_a_token_costs() -> None:
    old = only("[TensorRT-LLM][INFO] Allocate 69524783104 bytes for k/v cache. [TensorRT-LLM][INFO] Using 132608 tokens in paged")
    new = only("Allocated 16.10 GiB for max tokens in paged KV cache (301472).")
    assert figures(old)["per token"] == 524288
    assert round(figures(new)["per token"]) == 57343


def test_tgi_is_told_a_prefill_half_as_long() -> None:
    found = only("Not enough memory to handle 4096 prefill tokens. You need to decrease `--max-batch-prefill-tokens`")
    assert found.advice[0].startswith("--max-batch-prefill-tokens 2048")


def test_a_log_without_any_is_none() -> None:
    assert read_engine_messages("all is well, 14 GiB of 24 used") == ()


def test_the_command_reads_a_log_and_names_what_it_expects(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    log = tmp_path / "serve.log"
    log.write_text("Available KV cache memory: -2.77 GiB")
    assert run(["explain", str(log), "--json"]) == 0
    answer = json.loads(capfdbinary.readouterr().out)
    assert (answer["kind"], answer["engine_messages"][0]["engine"]) == ("engine messages", "vllm")
    log.write_text("nothing of interest")
    assert run(["explain", str(log)]) == 2
    assert b"holds nothing that can be explained" in capfdbinary.readouterr().err
