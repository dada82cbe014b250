"""The Python stack above an out-of-memory message says what the program was doing, and the advice follows."""

import pytest

from vramcast.reading.engine_messages import read_engine_messages
from vramcast.reading.out_of_memory import read_out_of_memory
from vramcast.reading.stack import moment_of

SITE = "/usr/lib/python3.11/site-packages"
MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 23.64 GiB of which "
    "1.10 GiB is free. Process 4242 has 22.53 GiB memory in use. Of the allocated memory 20.00 GiB is allocated by PyTorch, and "
    "2.20 GiB is reserved by PyTorch but unallocated."
)


def traceback(*frames: tuple[str, str]) -> str:
    lines = "\n".join(f'  File "{SITE}/{file}", line 12, in {name}\n    x = y' for file, name in frames)
    return f"Traceback (most recent call last):\n{lines}\n{MESSAGE}"


TRAINER = (("transformers/trainer.py", "train"), ("transformers/trainer.py", "_inner_training_loop"))


@pytest.mark.parametrize(
    ("frames", "doing", "advice"),
    [
        ([("torch/optim/optimizer.py", "wrapper"), ("torch/optim/adamw.py", "_init_group")], "optimizer's states", "adamw_8bit"),
        (
            [
                ("transformers/trainer.py", "evaluate"),
                ("transformers/trainer.py", "compute_loss"),
                ("torch/nn/functional.py", "linear"),
            ],
            "evaluating",
            "eval_accumulation_steps",
        ),
        (
            [("transformers/loss/loss_utils.py", "ForCausalLMLoss"), ("torch/nn/functional.py", "cross_entropy")],
            "the loss",
            "--loss linear",
        ),
        ([("transformers/trainer.py", "_save_checkpoint"), ("torch/nn/modules/module.py", "state_dict")], "saving", "sharded"),
        ([("deepspeed/runtime/zero/stage_1_and_2.py", "__init__")], "DeepSpeed's ZeRO optimizer", "higher ZeRO stage"),
        ([("torch/_tensor.py", "backward"), ("torch/autograd/graph.py", "_engine_run_backward")], "backward", "checkpointing"),
        (
            [("transformers/trainer.py", "training_step"), ("torch/nn/modules/linear.py", "forward")],
            "forward pass",
            "checkpointing",
        ),
        ([("vllm/v1/worker/gpu_model_runner.py", "initialize_kv_cache")], "engine's KV cache", "--gpu-memory-utilization"),
        ([("vllm/v1/worker/gpu_model_runner.py", "capture_model"), ("x.py", "forward")], "CUDA graphs", "--enforce-eager"),
        (
            [("transformers/modeling_utils.py", "from_pretrained"), ("torch/nn/modules/module.py", "convert")],
            "loading",
            "fewer bits",
        ),
        (
            [("transformers/generation/utils.py", "_sample"), ("transformers/cache_utils.py", "update")],
            "KV cache",
            "fewer or shorter",
        ),
    ],
)
def test_moments(frames: list[tuple[str, str]], doing: str, advice: str) -> None:
    found = read_out_of_memory("epoch 1\n" + traceback(*TRAINER, *frames))
    assert found is not None and found.moment is not None
    assert doing in found.moment.doing
    assert advice in found.advice()[0]


def test_without_a_telling_frame_the_size_of_the_request_speaks() -> None:
    found = read_out_of_memory(traceback(("my/script.py", "main")))
    assert found is not None and found.moment is None
    assert any("logits or attention scores" in said for said in found.advice())
    assert moment_of("no traceback here") is None


def test_the_last_traceback_decides() -> None:
    first, last = traceback(("torch/optim/adamw.py", "_init_group")), traceback(("torch/_tensor.py", "backward"))
    found = moment_of(first + "\nretry\n" + last)
    assert found is not None and found.doing == "the backward pass"


def test_more_free_than_wanted_and_memory_outside_pytorch_are_explained() -> None:
    old = "RuntimeError: HIP out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.98 GiB total capacity; "
    old += "14.00 GiB already allocated; 1.00 GiB free; 14.37 GiB reserved in total by PyTorch)"
    found = read_out_of_memory(old)
    assert found is not None
    assert found.unexplained_bytes == pytest.approx(0.61 * 2**30, rel=0.01)
    assert "more was free than was asked for" in found.advice()[0]


@pytest.mark.parametrize(
    ("text", "engine", "figures"),
    [
        (
            "RuntimeError: MPS backend out of memory (MPS allocated: 18.00 GB, other allocations: 384.00 MB, "
            "max allowed: 18.13 GB). Tried to allocate 2.00 GB on private pool.",
            "mps",
            {"short of": 2.245},
        ),
        ("RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be", "cuda", {}),
        ("Error: model requires more system memory (5.6 GiB) than is available (3.2 GiB)", "ollama", {"short of": 2.4}),
        ("Error: llama runner process has terminated: cudaMalloc failed: out of memory", "ollama", {}),
        ("OOM when allocating tensor with shape[32,512,4096] and type half on /job:localhost", "tensorflow", {"wanted": 0.125}),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 bytes.", "jax", {"wanted": 1.0}),
        ("Out of memory: Killed process 77 (python) total-vm:9kB, anon-rss:2097152kB, x", "linux", {"held of the host": 2.0}),
        ("epoch 1\nKilled", "linux", {}),
    ],
)
def test_messages_of_platforms(text: str, engine: str, figures: dict[str, float]) -> None:
    found = next(f for f in read_engine_messages(text) if f.engine == engine)
    shown = {f.name: f.value / 2**30 for f in found.figures}
    for name, gibibytes in figures.items():
        assert shown[name] == pytest.approx(gibibytes, rel=0.01)
    assert found.advice


def test_an_npu_is_read_as_a_card() -> None:
    found = read_out_of_memory(
        "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 3; 60.97 GiB total capacity; 1.00 GiB free)"
    )
    assert found is not None and (found.backend, found.gpu) == ("NPU", 3)


def test_remedies_say_whether_they_are_enough() -> None:
    text = (
        "ValueError: To serve at least one request with the models's max seq len (131072), (24.00 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (3.18 GiB). Based on the available memory, the estimated maximum "
        "model length is 17360."
    )
    (found,) = read_engine_messages(text)
    assert any("12.00 GiB instead of 24.00 GiB, not enough alone for 3.18 GiB" in said for said in found.advice)
    assert any(said.startswith("--tp 8: 3.00 GiB of cache") for said in found.advice)
