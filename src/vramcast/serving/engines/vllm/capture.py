"""The batch sizes that vLLM captures CUDA graphs for, by release and engine.

Sources: vllm/config/vllm.py _set_cudagraph_sizes (0.11 on: twice the sequences, every 8 below 256, then every 16); vllm/config.py
cuda_graph_sizes (0.8 to 0.9: 512 whatever the sequences, every 8) and, for the V0 engine, the least possible size that holds all
sequences; vllm/worker/model_runner.py _BATCH_SIZES_TO_CAPTURE (before 0.6: at most 256).
"""

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.quantity import Number, maximum, minimum, where
from vramcast.serving.engines.versions import Table, Version, at

LARGEST = 512
LARGEST_DATACENTRE_BLACKWELL = 1024
LARGEST_BEFORE_0_6 = 256
STEP = 8
WIDE_FROM = 256
# sizes above 256 are 8 apart, and 16 from 0.11 on
WIDE_STEP: Table[int] = (((0,), STEP), ((0, 11), 2 * STEP))
# whole graphs of decode batches are captured beside those cut at attention
WHOLE_GRAPHS: Table[bool] = (((0,), False), ((0, 11), True))
# the largest size is twice the sequences rather than 512 whatever they are
BY_SEQUENCES: Table[bool] = (((0,), False), ((0, 10), True))
LARGEST_ON_BLACKWELL: Table[int] = (((0,), LARGEST), ((0, 29), LARGEST_DATACENTRE_BLACKWELL))
LARGEST_OF_V0: Table[int | None] = (((0,), LARGEST_BEFORE_0_6), ((0, 6), None))
V1_SIZES = (0, 8)


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """What decides the graphs of one rank; ``max_seqs`` and ``max_tokens`` may be arrays, one element per layout.

    ``core``: V0 or V1; ``speculative``: tokens drafted per step; ``element``: bytes of one activation; ``lora``:
    adapters' kernels are launched; ``dequantizes``: bitsandbytes' are; ``flashinfer``: attention is its.
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

    @property
    def largest(self) -> Number:
        """The batch size that bounds what is captured."""
        if self.core == "V0" or self.version < V1_SIZES:
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

    def _whole(self) -> bool:
        return self.core != "V0" and at(self.version, WHOLE_GRAPHS)

    def _decode(self) -> Number:
        return minimum(self.largest, self.max_seqs * (1 + self.speculative))

    def _asked(self) -> Number:
        if not at(self.version, BY_SEQUENCES):
            return LARGEST
        blackwell = self.card is not None and (self.card.capability or (0, 0))[0] == 10
        cap = at(self.version, LARGEST_ON_BLACKWELL) if blackwell else LARGEST
        return minimum(self.max_seqs * (1 + self.speculative) * 2, cap)

    def _largest_of_v0(self) -> Number:
        most = where(self.max_seqs > 4, -(-self.max_seqs // STEP) * STEP, self.max_seqs)
        cap = at(self.version, LARGEST_OF_V0)
        return most if cap is None else minimum(most, cap)

    def _step(self) -> int:
        return STEP if self.core == "V0" else at(self.version, WIDE_STEP)

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
