"""CUDA graphs of a vLLM rank: which batches are captured, and what their pool and nodes take.

A private pool plus the nodes of every kernel launched, per layer, graph and capture mode. The constants are read off start-up
logs: bytes of a node from those of 0.19 (8 to 80 layers lie on one line) and, for the V0 engine, from nine starts of 0.7 to 0.9
on four cards, where LoRA and bitsandbytes launch their own kernels. On Hopper whole decode graphs also keep FlashAttention-3's
partial outputs of the largest batch, fp32 for each of 32 splits of the context (v1/attention/backends/flash_attn.py,
flash_attn_max_num_splits_for_cuda_graph): the part that tensor parallelism cuts. Pooling runs have no whole graphs
(v1/worker/gpu_model_runner.py: "Pooling models do not support full cudagraphs"). More than two cards that only the host's link
joins, and numbers of ranks that vLLM's own all-reduce lacks, reduce by NCCL (distributed/device_communicators/
custom_all_reduce.py), which captures its kernels on a stream of its own with event nodes beside (nccl, src/misc/strongstream.cc).
"""

import msgspec

from vramcast.hardware.accelerator import Accelerator, meet_on_host
from vramcast.hardware.runtime import cublas_workspace_bytes
from vramcast.ledger import Term
from vramcast.models.layers import Attention, Experts, LatentAttention
from vramcast.models.sharding import Stage
from vramcast.quantity import Number, bytes_, is_nothing, maximum, minimum, named, where
from vramcast.serving.engines.base import Fitted, Version, at
from vramcast.serving.engines.vllm import versions
from vramcast.serving.engines.vllm.profile import widest_slice
from vramcast.tracing.allocator.settings import LARGE_SEGMENT
from vramcast.units import KiB, MiB

NODE_KIB = Fitted(19.4, 42, "start-up logs of 0.19, 8 to 80 layers on one line")
# kernels of one decoded layer: fused by torch.compile, as written (V0), and what routed experts launch more
COMPILED, EAGER, ROUTED = 8, 11, 3
# shrink and expand of the four adapted linear layers; slices dequantised, multiplied and copied rather than four products
LORA, DEQUANTIZED = 8, 12
COLLECTIVE_KIB = Fitted(112, 3, "Qwen2.5-72B on four L40S (0.19), Qwen3-235B on eight (0.10), Qwen2-7B on two nodes")
OWN_REDUCE_RANKS = (2, 4, 6, 8)
SPLITS = 32
ACCUMULATOR_BYTES = 4
# v1/attention/backends/flashinfer.py: one float workspace, and a wrapper with its integer workspace for every decode size
FLASHINFER_WORKSPACE = 394 * MiB
FLASHINFER_WRAPPER = 8 * MiB
_WRAPPER_SHARE = LARGE_SEGMENT // (LARGE_SEGMENT // FLASHINFER_WRAPPER)
LARGEST = 512
STEP = 8
WIDE_FROM = 256


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """What decides the graphs of one rank; ``max_seqs`` and ``max_tokens`` may be arrays, one element per layout.

    ``core``: V0 or V1; ``speculative``: tokens drafted per step; ``element``: bytes of one activation; ``lora``:
    adapters' kernels are launched; ``dequantizes``: bitsandbytes' are; ``flashinfer``: attention is its; ``recurrent``: layers
    with recurrent states are among the model's; ``pools``: vectors are made, no tokens; ``asked_largest``: what is asked for or
    the class sets whatever the sequences are, 0: nothing (models/config.py GptOssForCausalLMConfig).
    """

    version: Version
    max_seqs: Number
    max_tokens: Number
    core: str = "V1"
    tp: int = 1
    speculative: int = 0
    card: Accelerator | None = None
    element: float = 2
    lora: bool = False
    dequantizes: bool = False
    flashinfer: bool = False
    recurrent: bool = False
    pools: bool = False
    asked_largest: int = 0

    @property
    def largest(self) -> Number:
        """The batch size that bounds what is captured."""
        if self.core == "V0" or not at(self.version, versions.V1_SIZES):
            return self._largest_of_v0()
        return minimum(self._asked(), self.max_tokens)

    @property
    def sizes(self) -> Number:
        """How many batch sizes are captured: 1, 2, 4, every 8 below 256, and above in wider steps."""
        return self._count(self.largest)

    @property
    def whole_sizes(self) -> Number:
        """How many of them are captured as whole decode graphs besides; V0 captured none."""
        return self._count(self._decode()) if self._whole() else 0

    @property
    def largest_whole(self) -> Number:
        """The largest batch captured as a whole decode graph, 0 where there is none."""
        return self._size_below(self._decode()) if self._whole() else 0

    @property
    def reduces_by_nccl(self) -> bool:
        """Whether captured all-reduces are NCCL's; cards whose links are not known are taken to have vLLM's own."""
        if self.tp == 1 or self.card is None:
            return False
        return self.tp not in OWN_REDUCE_RANKS or (self.tp > 2 and meet_on_host(self.card, self.tp))

    @property
    def warmed(self) -> bool:
        """Whether FlashInfer's kernels have run, and made its workspace, when graphs are captured: where all layers are its."""
        return self.flashinfer and not self.recurrent and self.core != "V0" and at(self.version, versions.WARMS_FLASHINFER)

    def _whole(self) -> bool:
        """Whether any are: not of vectors, nor of drafts by FlashInfer's wrappers, which decode a token a sequence."""
        since = versions.WHOLE_GRAPHS_OF_STATES if self.recurrent else versions.WHOLE_GRAPHS
        return self.core != "V0" and at(self.version, since) and not self.pools and not (self.flashinfer and self.speculative)

    def _decode(self) -> Number:
        return minimum(self.largest, self.max_seqs * (1 + self.speculative))

    def _asked(self) -> Number:
        if self.asked_largest:
            return self.asked_largest
        if not at(self.version, versions.SIZES_BY_SEQUENCES):
            return LARGEST
        blackwell = self.card is not None and (self.card.capability or (0, 0))[0] == 10
        cap = at(self.version, versions.LARGEST_ON_BLACKWELL) if blackwell else LARGEST
        return minimum(self.max_seqs * (1 + self.speculative) * 2, cap)

    def _largest_of_v0(self) -> Number:
        most = where(self.max_seqs > 4, -(-self.max_seqs // STEP) * STEP, self.max_seqs)
        cap = at(self.version, versions.LARGEST_OF_V0)
        return most if cap is None else minimum(most, cap)

    def _step(self) -> int:
        return STEP if self.core == "V0" else at(self.version, versions.WIDE_STEP)

    def _count(self, most: Number) -> Number:
        """Sizes up to ``most``, which is at least 1."""
        small = 1 + (most >= 2) * 1 + (most >= 4) * 1 + minimum(most // STEP, WIDE_FROM // STEP - 1)
        return small + maximum((most - WIDE_FROM) // self._step() + 1, 0)

    def _size_below(self, most: Number) -> Number:
        """The largest size up to ``most``."""
        step = self._step()
        small = where(most >= 4, 4, where(most >= 2, 2, 1))
        wide = WIDE_FROM + (most - WIDE_FROM) // step * step
        return where(most >= WIDE_FROM, wide, where(most >= STEP, most // STEP * STEP, small))


def graphs_term(stage: Stage, capture: Capture, *, eager: bool) -> Term:
    """Memory of the captured graphs of one rank: cut at attention for every size, whole ones for decode batches since 0.11."""
    if eager:
        return Term(name="graphs", bytes=0, why="enforce_eager: none are captured")
    parts = [_nodes(stage, capture), *_collectives(stage, capture), *_pool(stage, capture), *_attention(stage, capture)]
    return Term.total(
        "graphs", [p for p in parts if not is_nothing(p.bytes)], source="vllm/config/vllm.py; start-up logs of 0.7 to 0.19"
    )


def reserve_term(graphs: Term, capture: Capture, *, second: bool) -> Term:
    """What a release that estimates its graphs before the cache is sized holds back for them.

    The first runner captures two sizes of each kind and multiplies (v1/worker/gpu_model_runner.py profile_cudagraph_memory): its
    estimates lie around what is captured. The second runner captures two whole graphs by themselves, so that each size is taken
    for a segment of torch's allocator, which the graphs share when all are captured (v1/worker/gpu/cudagraph_utils.py). Neither
    has warmed FlashInfer then.
    """
    if is_nothing(graphs.bytes) or is_nothing(capture.whole_sizes):
        return graphs
    if capture.warmed:
        graphs = Term.total("graphs held back for", (*graphs.terms, flashinfer_workspace()), source=graphs.source)
    if not second:
        return graphs
    apart = named(capture.whole_sizes, "whole decode graphs") * bytes_(LARGE_SEGMENT, "a segment of torch's allocator")
    return Term.total("graphs held back for", (*graphs.terms, Term(name="segments", amount=apart)), source=graphs.source)


def flashinfer_workspace() -> Term:
    """The float workspace that all of its wrappers share."""
    return Term(name="flashinfer_workspace", bytes=FLASHINFER_WORKSPACE, why="v1/attention/backends/flashinfer.py")


def _nodes(stage: Stage, capture: Capture) -> Term:
    """Nodes of all kernels of all graphs."""
    graphs = named(capture.sizes, "sizes") + named(capture.whole_sizes, "whole decode graphs")
    launched = named(stage.layers, "layers") * named(_kernels(capture), "kernels")
    routed = sum(n for block, n in stage.blocks if isinstance(block.feedforward, Experts))
    if routed:
        launched += named(routed, "routed layers") * named(ROUTED, "more")
    return Term(name="nodes", amount=graphs * launched * bytes_(NODE_KIB.value * KiB, NODE_KIB.why))


def _collectives(stage: Stage, capture: Capture) -> list[Term]:
    """All-reduces of all graphs, where they are NCCL's: one behind each mixer and each feed-forward."""
    if not capture.reduces_by_nccl:
        return []
    graphs = named(capture.sizes, "sizes") + named(capture.whole_sizes, "whole decode graphs")
    reduced = sum(n * (len(block.mixers) + (block.feedforward is not None)) for block, n in stage.blocks)
    each = bytes_(COLLECTIVE_KIB.value * KiB, COLLECTIVE_KIB.why)
    return [Term(name="collectives", amount=graphs * named(reduced, "all-reduces by NCCL") * each)]


def _kernels(capture: Capture) -> int:
    """Kernels of a layer; adapters' are launched while capturing by V0, and again since 0.11."""
    v0 = capture.core == "V0"
    launched = capture.lora and (v0 or at(capture.version, versions.CAPTURES_LORA))
    return (EAGER if v0 else COMPILED) + LORA * launched + DEQUANTIZED * capture.dequantizes


def _pool(stage: Stage, capture: Capture) -> list[Term]:
    """The pool the graphs share: what the largest one works in, and kernels of routed experts first met there."""
    parts = []
    if capture.dequantizes:
        elements = where(capture.largest > 1, widest_slice(stage, capture.tp), 0)
        parts.append(Term(name="dequantized", amount=named(elements, "elements of the widest slice") * bytes_(capture.element)))
    if capture.core == "V0":
        why = "workspace torch gives cuBLAS on the capturing stream"
        return [*parts, Term(name="pool", bytes=cublas_workspace_bytes(capture.card), why=why)]
    base, each = at(capture.version, versions.POOL_MIB), at(capture.version, versions.SIZE_MIB)
    routed = any(isinstance(block.feedforward, Experts) for block, _ in stage.blocks)
    rows = LARGEST if routed else minimum(capture.largest, LARGEST)
    worked = named(base.value, "MiB") * named(rows, "rows") / named(LARGEST, "rows in the logs")
    pool = (worked + named(capture.sizes, "sizes") * named(each.value, "MiB")) * bytes_(MiB, base.why)
    return [*parts, Term(name="pool", amount=pool)]


def _attention(stage: Stage, capture: Capture) -> list[Term]:
    """What the attention kernels keep for whole decode graphs: FlashInfer's workspaces, or FlashAttention-3's partial outputs."""
    if capture.flashinfer:
        if is_nothing(capture.whole_sizes):
            return []
        wrappers = named(capture.whole_sizes, "decode sizes") * bytes_(_WRAPPER_SHARE, "of a segment with two wrappers")
        kept = [Term(name="flashinfer", amount=wrappers)]
        return kept if capture.warmed else [*kept, flashinfer_workspace()]
    if capture.card is None or (capture.card.capability or (0, 0))[0] != 9:
        return []
    widest = max((_output_width(mixer) for block, _ in stage.blocks for mixer in block.mixers), default=0)
    elements = named(SPLITS, "splits") * named(capture.largest_whole, "rows") * named(widest, "wide")
    size = elements * bytes_(ACCUMULATOR_BYTES, "of partial outputs")
    return [Term(name="partial_outputs", bytes=size.value // capture.tp, why=size / named(capture.tp, "ranks"))]


def _output_width(mixer: object) -> int:
    """Elements a decoded token's attention leaves before its projection; latent attention's are as wide as the latent."""
    if isinstance(mixer, LatentAttention):
        return mixer.heads * mixer.kv_rank
    return mixer.heads * mixer.values if isinstance(mixer, Attention) else 0
