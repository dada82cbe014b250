"""The batch sizes that vLLM captures CUDA graphs for, by release and engine; sources stand beside the tables in versions.py."""

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.quantity import Number, maximum, minimum, where
from vramcast.serving.engines.versions import Version, at
from vramcast.serving.engines.vllm import versions

LARGEST = 512
STEP = 8
WIDE_FROM = 256


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

    def _whole(self) -> bool:
        return self.core != "V0" and at(self.version, versions.WHOLE_GRAPHS)

    def _decode(self) -> Number:
        return minimum(self.largest, self.max_seqs * (1 + self.speculative))

    def _asked(self) -> Number:
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
