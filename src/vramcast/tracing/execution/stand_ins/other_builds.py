"""torchvision and torchaudio built for another torch than the one that is here: what needs none of their compiled code goes on.

The package index has them for CUDA, and a torch for processors loads no library that was linked with CUDA's: torchvision 0.28
then fails in its own import (``_meta_registrations.py`` registers a shape function for an operator that nobody has defined), and
with it every library that imports it, transformers among them; torchaudio 2.11's ``_extension`` raises where its library is not
loaded. What is asked of an operator that is missing still ends the run, with the package's own words.
"""

import functools
from typing import Any

from vramcast.tracing.execution.stand_ins.imported import when_imported

# torchvision/csrc/ops/nms.cpp and quantized/cpu/qnms_kernel.cpp of 0.28; of these alone are shapes registered without asking
# whether they are there.
_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_kept: list[Any] = []  # a torch.library.Library takes its definitions with it when it goes


def install() -> None:
    """Let both be imported, whatever they were built for."""
    when_imported("torchvision.extension", _without_operators)
    when_imported("torchaudio._extension.utils", _without_library)


def _without_operators(module: Any) -> None:
    """Define the operators that torchvision gives shapes to, where its own library did not."""
    if module._has_ops():
        return
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name, schema in _SCHEMAS.items():
        if not torch._C._dispatch_has_kernel(f"torchvision::{name}"):
            library.define(name + schema)
    _kept.append(library)


def _without_library(module: Any) -> None:
    """Say that torchaudio's library is not there, where it cannot be loaded."""
    load = module._load_lib

    @functools.wraps(load)
    def load_or_not(name: str) -> bool:
        try:
            return bool(load(name))
        except OSError:
            return False

    module._load_lib = load_or_not
