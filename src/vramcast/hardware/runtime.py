"""Device memory that belongs to the runtime and not to a model; the one home of these figures, asked by every package.

It is a process's CUDA context, eagerly loaded kernels, cuBLAS's workspaces, NCCL's buffers, and what the driver keeps of a card.

The driver backs local memory for every thread that can be resident, so a context follows the card's shape:
20 MiB + 1.9 KiB x SMs x resident threads per SM. The eight readings in ``CONTEXT_READINGS`` lie on it within 5 MiB, from a
32-SM MIG slice to an H100; PyTorch adds its kernels on top when modules load eagerly (before CUDA 11.7).

A start-up log may count more under the same name. What it counts beside these figures is a named correction with its source
(``ENGINE_START_BYTES``), not another value of the same fact.
"""

from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Assumption, Term
from vramcast.quantity import Number, where
from vramcast.units import KiB, MiB

CONTEXT_BASE_BYTES = 20 * MiB
CONTEXT_BYTES_PER_THREAD = round(1.9 * KiB)
# (what, SMs, resident threads per SM, MiB read, source)
CONTEXT_READINGS = (
    ("H100, H200", 132, 2048, 518, "nvidia_gpu_exporter captures, driver 590: process less its buffer"),
    ("RTX 6000 Ada", 142, 1536, 426, "unsloth-zoo pull 1053"),
    ("RTX 3090, torch 2.7", 82, 1536, 256, "InvokeAI pull 9413"),
    ("RTX 3090, driver only", 82, 1536, 251, "pytorch issue 54564"),
    ("RTX 4000 SFF Ada", 48, 1536, 160, "telegraf nvidia_smi test data"),
    ("Titan V, driver only", 80, 2048, 320, "pytorch issue 28394"),
    ("H100 MIG 3g.40gb", 60, 2048, 248, "nvidia_gpu_exporter captures"),
    ("H200 MIG slice", 32, 2048, 146, "nvidia_gpu_exporter captures"),
)
# Kernels of PyTorch loaded at start-up when loading is eager: 1001 - 251 MiB on an RTX 3090 (pytorch issue 54564), 1008 - 320 on
# a Titan V (issue 28394, torch 1.3). Data-centre cards were read with the CUDA 11 builds of 2021: 1573 - 430 MiB on an A100,
# 1271 - 324 on a V100 (bigscience, train/tr11-176B-ml/chronicles-prequel.md).
EAGER_MODULES_BYTES = 720 * MiB
EAGER_MODULES_BYTES_BY_CAPABILITY = {(7, 0): 947 * MiB, (8, 0): 1143 * MiB}
# A context under WSL2 was read at 1341 MiB on an RTX 3090 (club-3090): so much more than on bare Linux.
WSL_EXTRA_BYTES = 1085 * MiB
_UNKNOWN_SHAPE_BYTES = 400 * MiB

# PyTorch gives cuBLAS a workspace for each handle and stream out of its caching allocator, and never takes it back: 4096 KiB x 2
# + 16 KiB x 8, but 32 MiB on Hopper and on the Blackwell parts (compute capability 9, 10, 12); ROCm 32 MiB, 128 MiB on CDNA3
# and CDNA4. cublasLt shares it. Source: aten/src/ATen/cuda/CublasHandlePool.cpp, parseChosenWorkspaceSize.
CUBLAS_WORKSPACE_BYTES = 2 * 4096 * KiB + 8 * 16 * KiB
CUBLAS_WIDE_WORKSPACE_BYTES = 32 * MiB
CUBLAS_WIDE_SINCE_HOPPER = (9, 10, 12)
HIPBLAS_WORKSPACE_BYTES = 32 * MiB
HIPBLAS_WIDE_WORKSPACE_BYTES = 128 * MiB
HIPBLAS_WIDE = ("gfx94", "gfx95")

# The newest generation whose facts were read; a card after it is answered by this one's, and the answer says so.
NEWEST_MAJOR = 12

# NCCL 2.30 per channel and neighbour: 10 MiB where it receives (LL 0.5 + LL128 4.7 + SIMPLE 4 MiB, rounded to 2 MiB pages), 2 MiB
# where it sends. Source: NCCL src/init.cc, transport/p2p.cc; allocations seen in nccl issue 1685.
NCCL_NEIGHBOUR_BYTES = 12 * MiB
# Rings and trees of one communicator inside a node: 342 MiB for a pair, 392 MiB from four cards on (aiconfigurator systems).
NCCL_PAIR_BYTES = 342 * MiB
NCCL_RING_BYTES = 392 * MiB
NCCL_CHANNELS_PER_PEER = 32
# Correction of a reading: what a serving engine's rank holds beside its context when it starts to load weights, from two ranks
# on. It has made several communicators by then (the world's, tensor and pipeline parallel ones, each through torch and through
# the engine's own bindings), so that the log's "total less free" counts them together: 0.92 to 1.04 GiB beside the context in
# nine starts of vLLM 0.19 on two and four H100, alike for tensor and pipeline parallelism; SGLang's free memory before the
# weights is as much lower. vLLM makes one more for a model with experts: 1.50 to 1.56 GiB in three starts on cards with NVLink;
# without it two starts show no more than the rest.
ENGINE_START_BYTES = 1024 * MiB
EXPERT_GROUP_BYTES = 512 * MiB


def context_bytes(card: Accelerator | None, *, lazy: bool = True, wsl: bool = False) -> int:
    """Memory of one process's context on this card, before it allocates anything, bytes."""
    if card is None or not card.sms or not card.capability:
        shaped = _UNKNOWN_SHAPE_BYTES
    else:
        shaped = CONTEXT_BASE_BYTES + CONTEXT_BYTES_PER_THREAD * card.sms * resident_threads(card.capability)
    return shaped + (0 if lazy else _eager_modules(card)) + (WSL_EXTRA_BYTES if wsl else 0)


def _eager_modules(card: Accelerator | None) -> int:
    capability = card.capability if card else None
    return EAGER_MODULES_BYTES_BY_CAPABILITY.get(capability or (0, 0), EAGER_MODULES_BYTES)


def context_term(card: Accelerator | None) -> Term:
    """The context as a term with its numbers."""
    why = f"{_UNKNOWN_SHAPE_BYTES // MiB} MiB, as on most cards: the shape of this one is not known"
    if card is not None and card.sms and card.capability:
        each = f"{card.sms} SMs x {resident_threads(card.capability):,} threads x {CONTEXT_BYTES_PER_THREAD / KiB:.1f} KiB"
        why = f"{CONTEXT_BASE_BYTES // MiB} MiB + {each} of local memory, backed by the driver"
    return Term(name="context", bytes=context_bytes(card), why=why, source="readings of eight cards (hardware/runtime.py)")


def resident_threads(capability: tuple[int, int]) -> int:
    """Threads that one SM can hold. Source: CUDA programming guide, technical specifications per compute capability."""
    known = known_capability(capability)
    if known == (7, 5):
        return 1024
    return 1536 if known in {(8, 6), (8, 7), (8, 9)} or known >= (11, 0) else 2048


def known_capability(capability: tuple[int, int]) -> tuple[int, int]:
    """The compute capability whose facts hold for this one: itself, or the newest that was read."""
    return capability if capability[0] <= NEWEST_MAJOR else (NEWEST_MAJOR, 0)


def assumed_class(card: Accelerator | None) -> tuple[Assumption, ...]:
    """What is taken for granted of a card newer than every generation that was read; nothing of any other."""
    own = card.capability if card else None
    if card is None or own is None or own[0] <= NEWEST_MAJOR:
        return ()
    because = f"{card.name} has compute capability {own[0]}.{own[1]}, newer than the facts here"
    return (Assumption("compute_capability", f"{NEWEST_MAJOR}.0", because),)


def cublas_workspace_bytes(card: Accelerator | None) -> int:
    """One cuBLAS workspace on this card, bytes; of the generations before Hopper where no card is named."""
    if card is not None and card.target:
        return HIPBLAS_WIDE_WORKSPACE_BYTES if card.target.startswith(HIPBLAS_WIDE) else HIPBLAS_WORKSPACE_BYTES
    return workspace_of_capability(card.capability if card else None)


def workspace_of_capability(capability: tuple[int, int] | None) -> int:
    """One cuBLAS workspace on NVIDIA's cards of that compute capability, bytes."""
    wide = capability is not None and known_capability(capability)[0] in CUBLAS_WIDE_SINCE_HOPPER
    return CUBLAS_WIDE_WORKSPACE_BYTES if wide else CUBLAS_WORKSPACE_BYTES


def nccl_bytes(ranks: Number, *, all_to_all: bool = False) -> Number:
    """Buffers of one communicator on one card, bytes: rings and trees, plus a set per peer once all-to-all has run.

    ``ranks`` is a number, or an array of them.
    """
    rings = where(ranks == 2, NCCL_PAIR_BYTES, NCCL_RING_BYTES)
    peers = NCCL_NEIGHBOUR_BYTES * NCCL_CHANNELS_PER_PEER * (ranks - 1) if all_to_all else 0
    return where(ranks <= 1, 0, rings + peers)


def engine_start_bytes(card: Accelerator | None, ranks: int, *, expert_group: bool = False) -> int:
    """What a serving engine's rank holds before its weights: its context and, from two ranks on, its communicators."""
    return context_bytes(card) + _communicators(card, ranks, expert_group)


def engine_start_term(card: Accelerator | None, ranks: int, *, expert_group: bool = False) -> Term:
    """The same as a term with its numbers."""
    context, more = context_term(card), _communicators(card, ranks, expert_group)
    why = context.why + (f", and {more // MiB:,} MiB of communicators as start-up logs read them" if more else "")
    return Term(name="context", bytes=context.bytes + more, why=why, source=context.source)


def _communicators(card: Accelerator | None, ranks: int, expert_group: bool) -> int:
    if ranks <= 1:
        return 0
    linked = card is not None and card.link_bytes_per_s > 0
    return ENGINE_START_BYTES + (EXPERT_GROUP_BYTES if expert_group and linked else 0)
