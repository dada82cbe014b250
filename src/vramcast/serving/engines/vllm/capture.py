"""The batch sizes that vLLM captures CUDA graphs for, by release and engine.

Sources: vllm/config/vllm.py _set_cudagraph_sizes (0.11 on: twice the sequences, every 8 below 256, then every 16); vllm/config.py
cuda_graph_sizes (0.8 to 0.9: 512 whatever the sequences, every 8) and, for the V0 engine, the least possible size that holds all
sequences; vllm/worker/model_runner.py _BATCH_SIZES_TO_CAPTURE (before 0.6: at most 256).
"""

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.serving.engines.versions import Version

LARGEST = 512
LARGEST_DATACENTRE_BLACKWELL = 1024
LARGEST_BEFORE_0_6 = 256
STEP = 8


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """What decides the graphs of one rank.

    ``core``: V0 or V1; ``speculative``: tokens drafted per step; ``element``: bytes of one activation; ``lora``:
    adapters' kernels are launched; ``dequantizes``: bitsandbytes' are; ``flashinfer``: attention is its.
    """

    version: Version
    max_seqs: int
    max_tokens: int
    core: str = "V1"
    tp: int = 1
    speculative: int = 0
    card: Accelerator | None = None
    element: float = 2
    lora: bool = False
    dequantizes: bool = False
    flashinfer: bool = False

    @property
    def sizes(self) -> list[int]:
        """Batch sizes captured, ascending."""
        if self.core == "V0" or self.version < (0, 8):
            return self._before_v1()
        most = min(self._asked(), self.max_tokens)
        above = range(256, most + 1, 16 if self.version >= (0, 11) else STEP)
        return [size for size in (1, 2, 4, *range(8, 256, STEP), *above) if size <= most] or [1]

    def whole(self, sizes: list[int]) -> list[int]:
        """Those captured as whole decode graphs besides, which are captured since 0.11; V0 captured no other."""
        if self.core == "V0" or self.version < (0, 11):
            return []
        return [size for size in sizes if size <= self.max_seqs * (1 + self.speculative)]

    def _asked(self) -> int:
        if self.version < (0, 10):
            return LARGEST
        blackwell = self.card is not None and (self.card.capability or (0, 0))[0] == 10
        cap = LARGEST_DATACENTRE_BLACKWELL if blackwell and self.version >= (0, 29) else LARGEST
        return min(self.max_seqs * (1 + self.speculative) * 2, cap)

    def _before_v1(self) -> list[int]:
        most = -(-self.max_seqs // STEP) * STEP if self.max_seqs > 4 else self.max_seqs
        if self.version < (0, 6):
            most = min(most, LARGEST_BEFORE_0_6)
        return [size for size in (1, 2, 4, *range(STEP, most + 1, STEP)) if size <= most]
