"""Messages of platforms rather than engines: Apple's MPS, CUDA without numbers, TensorFlow, JAX, and Linux' own killer.

Texts: pytorch aten/mps/MPSAllocator.mm; tensorflow core/framework/bfc_allocator; xla pjrt; linux mm/oom_kill.c.
"""

import re

from vramcast.reading.engine_messages import Figure, Finding, Signature, count, size

#: Who speaks in them: no engine.
PLATFORMS = frozenset({"mps", "cuda", "tensorflow", "jax", "linux"})
_GB_OF_MPS = {"GB": "GiB", "MB": "MiB", "KB": "KiB", "bytes": "bytes"}  # MPS prints binary sizes with decimal names
_SIZE = r"([\d.]{1,12}) (GB|MB|KB|bytes)"
_SEE = "see what fills it: vramcast train or serve with the same settings"


def _mps(found: re.Match[str]) -> Finding:
    held, others, most, wanted = (size(found[i], _GB_OF_MPS[found[i + 1]]) for i in (1, 3, 5, 7))
    return Finding(
        engine="mps",
        moment="asking for memory",
        what="PyTorch on Metal may use a share of the Mac's memory, and it is full",
        figures=(
            Figure("held by tensors", held, "bytes"),
            Figure("held by others", others, "bytes"),
            Figure("allowed", most, "bytes"),
            Figure("wanted", wanted, "bytes"),
            Figure("short of", max(0, held + others + wanted - most), "bytes"),
        ),
        advice=(
            "a smaller batch, shorter sequences, or fewer bits; 16-bit weights (torch_dtype=torch.float16)",
            "llama.cpp or MLX: 4-bit weights on Metal",
            "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 lifts the limit, and the system may then freeze",
        ),
    )


def _bare_cuda(found: re.Match[str]) -> Finding:
    del found
    return Finding(
        engine="cuda",
        moment="asking the driver for memory",
        what="the driver itself had nothing left: no numbers, because PyTorch's allocator was not the one that asked",
        advice=(
            "nvidia-smi: another process may hold the card (a crashed run often leaves its worker behind)",
            "the CUDA context needs 0.3 to 0.6 GiB for each process: fewer processes on one card",
            "libraries beside PyTorch (NCCL, cuBLAS, flash-attn) need room too: leave 1 GiB free",
            _SEE,
        ),
    )


def _tensorflow(found: re.Match[str]) -> Finding:
    shape, kind = found[1], found[2]
    sizes = {"half": 2, "bfloat16": 2, "float": 4, "double": 8, "int64": 8, "int32": 4}
    total = sizes.get(kind, 4)
    for part in shape.split(","):
        total *= max(1, count(part.strip()))
    return Finding(
        engine="tensorflow",
        moment="asking for one tensor",
        what=f"a tensor of shape [{shape}] in {kind} had no room",
        figures=(Figure("wanted", total, "bytes"),),
        advice=(
            "a smaller batch: the first number of that shape is usually it",
            "mixed precision (mixed_bfloat16): half of every activation",
            "tf.config.experimental.set_memory_growth, where another program shares the card",
        ),
    )


def _jax(found: re.Match[str]) -> Finding:
    return Finding(
        engine="jax",
        moment="asking for memory",
        what="XLA's allocator had no room",
        figures=(Figure("wanted", count(found[1]), "bytes"),),
        advice=(
            "a smaller batch, or jax.checkpoint (remat)",
            "XLA_PYTHON_CLIENT_MEM_FRACTION=0.95, where the card is yours alone",
        ),
    )


def _killed(found: re.Match[str]) -> Finding:
    figures: tuple[Figure, ...] = ()
    if found.re.groups >= 2 and found[2]:
        figures = (Figure("held of the host", count(found[2]) * 1024, "bytes"),)
    return Finding(
        engine="linux",
        moment="running",
        what="Linux killed the process: the host's memory ran out, not the card's",
        figures=figures,
        advice=(
            "load with low_cpu_mem_usage (transformers does so by default) and safetensors, one process after the other",
            "fewer dataloader workers; offloaded states and weights live in host memory",
            "dmesg | grep -i 'killed process' names the process and its size; a container has a limit of its own",
        ),
    )


SIGNATURES = (
    Signature(
        re.compile(
            rf"MPS backend out of memory \(MPS allocated: {_SIZE}, other allocations: {_SIZE}, max allowed: {_SIZE}\)\. "
            rf"Tried to allocate {_SIZE}"
        ),
        _mps,
    ),
    Signature(
        re.compile(r"CUDA (?:driver )?error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED"), _bare_cuda
    ),
    Signature(re.compile(r"OOM when allocating tensor with shape\[([\d, ]{1,200})\] and type (\w{1,12})"), _tensorflow),
    Signature(re.compile(r"RESOURCE_EXHAUSTED: Out of memory while trying to allocate (\d{1,18}) bytes"), _jax),
    Signature(
        re.compile(r"Out of memory: Killed process (\d{1,10})[^,]{0,80}?(?:total-vm:\d{1,15}kB, )?anon-rss:(\d{1,15})kB"), _killed
    ),
    Signature(re.compile(r"(?:^| )(?:Killed|oom-kill:constraint|SIGKILL|exitcode ?: ?-9|exit code 137)(?:$|[\s.,)])"), _killed),
)
