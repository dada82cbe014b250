import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.errors import QuestionError
from vramcast.reading.training_logs import read_training_log

HF = "{'train_runtime': 120.5, 'train_samples_per_second': 3.0, 'train_steps_per_second': 0.375, 'train_loss': 1.2}"
BAR = " 12%|#2        | 120/1000 [04:00<29:20,  2.00s/it]"
LOGS = {
    "torchtitan": (
        "[titan] 2025-01-01 10:00:00,123 - root - INFO - step: 20  loss:  5.1  memory: 40.9GiB(51.6%)  tps: 7,480  "
        "tflops: 433.1  mfu: 43.8%",
        {"tokens_per_s": 7480, "flops_per_s": 433.1e12, "mfu": 0.438},
    ),
    "Megatron-LM": (
        " iteration      100/     500 | consumed samples:   12800 | elapsed time per iteration (ms): 12500.0 "
        "| throughput per GPU (TFLOP/s/GPU): 400.5 | learning rate: 1.0E-05 | global batch size:   128 | lm loss: 2.5E+00 |",
        {"step_s": 12.5, "flops_per_s": 400.5e12, "batch_all": 128},
    ),
    "Megatron-LM, DeepSpeed's fork": (
        " iteration        3/   1000 | elapsed time per iteration (s): 143.31 | learning rate: 1.0E-05 | "
        "global batch size:  2048 | lm loss: 1.2E+01 | samples per second: 14.291 | TFLOPs: 112.49 |",
        {"step_s": 143.31, "flops_per_s": 112.49e12, "batch_all": 2048, "samples_per_s_all": 14.291},
    ),
    "nanoGPT": ("iter 250: loss 3.2145, time 235.30ms, mfu 45.67%", {"step_s": 0.2353, "mfu": 0.4567}),
    "nanochat": (
        "step 00500/21400 (2.34%) | loss: 3.1 | lrm: 1.00 | dt: 350.00ms | tok/sec: 1,497,966 | mfu: 48.51 | total time: 3.1m",
        {"step_s": 0.35, "tokens_per_s_all": 1497966, "mfu": 0.4851},
    ),
    "llm.c": (
        "step   10/19560 | loss 9.6 | norm 3.3 | lr 8.57e-06 | 250.31 ms | 45.3% bf16 MFU | 2094500 tok/s",
        {"step_s": 0.25031, "mfu": 0.453, "tokens_per_s_all": 2094500},
    ),
    "litgpt": (
        "Epoch 1 | iter 64 step 4 | loss train: 1.212, val: n/a | iter time: 220.30 ms (step) remaining time: 0:12:01",
        {"step_s": 0.2203},
    ),
    "DeepSpeed": (
        "[INFO] [timer.py:260:stop] epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=29.8, "
        "CurrSamplesPerSec=30.5, MemAllocated=9.9GB, MaxMemAllocated=12.2GB",
        {"samples_per_s_all": 30.5},
    ),
    "DeepSpeed flops profiler": (
        "fwd latency:                                                  76.67 ms\n"
        "fwd FLOPS per GPU = fwd flops per GPU / fwd latency:          81.9 TFLOPS\n"
        "fwd+bwd FLOPS per GPU = 3 * fwd flops per GPU / (fwd+bwd latency):   102.0 TFLOPS\n"
        "samples/second:                                               433.14",
        {"flops_per_s": 102e12, "samples_per_s_all": 433.14},
    ),
    "llm-foundry": (
        "\t Train throughput/tokens_per_sec: 98304.0\n\t Train throughput/device/tokens_per_sec: 12288.0\n"
        "\t Train throughput/device/mfu: 0.4567",
        {"tokens_per_s_all": 98304, "tokens_per_s": 12288, "mfu": 0.4567},
    ),
    "Lightning": (
        "Epoch 0: | 10/100 [01:00<09:00, train_step_timing in s=6.00, TFLOPS_per_GPU=512.0]",
        {"step_s": 6, "flops_per_s": 512e12},
    ),
    "torchtune": ("Step 40 | loss:1.1 lr:2e-05 tokens_per_second_per_gpu:4567.8 mem:30.1", {"tokens_per_s": 4567.8}),
    "MaxText": (
        "completed step: 9, seconds: 28.294, TFLOP/s/device: 1520.276, Tokens/s/device: 579.059, loss: 3.1",
        {"step_s": 28.294, "flops_per_s": 1520.276e12, "tokens_per_s": 579.059},
    ),
    "Hugging Face Trainer": (HF, {"samples_per_s_all": 3.0, "runtime_s": 120.5}),
    "a progress bar": (BAR, {"step_s": 2.0}),
}  # fmt: skip


@pytest.mark.parametrize("program", LOGS)
def test_each_program_is_known_by_its_line(program: str) -> None:
    line, want = LOGS[program]
    got = read_training_log(f"loading model ...\n{line}\ndone\n")
    assert got.program == program.partition(",")[0]
    assert {name: getattr(got, name) for name in want} == pytest.approx(want)


def test_the_steady_half_counts_and_not_the_warm_up() -> None:
    times = [9000, 2000, 400, 250, 240, 250, 260, 250]
    text = "\n".join(f"iter {i}: loss 3.0, time {ms}ms, mfu {-100 if i < 5 else 40}%" for i, ms in enumerate(times))
    assert read_training_log(text).step_s == pytest.approx(0.25)


def test_a_throughput_beats_the_progress_bar_around_it() -> None:
    assert read_training_log("\r".join([BAR] * 50) + "\n" + HF).program == "Hugging Face Trainer"
    assert read_training_log(" 50%|# | 10/20 [00:05<00:05,  4.00it/s]").step_s == pytest.approx(0.25)


def test_trainer_state_and_results() -> None:
    row = {"train_runtime": 100.0, "train_samples_per_second": 8.0, "total_flos": 2.5e17}
    state = {"log_history": [{"loss": 1.0, "step": 1}, row], "total_flos": 2.5e17, "num_input_tokens_seen": 400_000}
    got = read_training_log(json.dumps(state))
    assert (got.samples_per_s_all, got.tokens_per_s_all, got.total_flops) == (8.0, 4000.0, 2.5e17)
    assert read_training_log(json.dumps(row, indent=1)).samples_per_s_all == 8.0


@pytest.mark.parametrize("text", ["", "hello", "{", '{"log_history": []}', "loss: 1.0", "[1, 2]"])
def test_a_log_without_throughput_is_refused(text: str) -> None:
    with pytest.raises(QuestionError, match="no line with a throughput"):
        read_training_log(text)


@given(st.text(max_size=300), st.sampled_from(sorted(LOGS)))
def test_any_text_around_a_line_is_survived(noise: str, program: str) -> None:
    read_training_log(f"{noise}\n{LOGS[program][0]}\n{noise}")
