"""torchvision and torchaudio whose compiled code was linked with another torch: what needs none of it is traced."""

from pathlib import Path

import pytest
from small_scripts import STEPS, trace_text

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

# As torchvision 0.28 and torchaudio 2.11 are imported where their libraries cannot be loaded.
_VISION = """
import torch
from . import extension
@torch.library.register_fake("torchvision::nms")
def meta_nms(dets, scores, iou_threshold):
    return dets.new_empty(3, dtype=torch.long)
"""
_EXTENSION = """
def _has_ops():
    return False
def _assert_has_ops():
    raise RuntimeError("Couldn't load custom C++ ops.")
"""
_LOADING = """
def _load_lib(name):
    raise OSError("libcudart.so.13: cannot open shared object file")
"""
_AUDIO = """
from .utils import _load_lib
available = _load_lib("_torchaudio")
"""


def _packages(folder: Path) -> None:
    for name, text in {
        "torchvision/__init__.py": _VISION,
        "torchvision/extension.py": _EXTENSION,
        "torchaudio/__init__.py": "from . import _extension",
        "torchaudio/_extension/__init__.py": _AUDIO,
        "torchaudio/_extension/utils.py": _LOADING,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_both_are_imported_without_their_libraries(tmp_path: Path) -> None:
    _packages(tmp_path)
    traced = trace_text(tmp_path, "import torchvision, torchaudio\nassert not torchaudio._extension.available\n" + STEPS)
    assert (traced.result.error, traced.result.steps) == ("", 2)


def test_what_needs_the_library_says_so(tmp_path: Path) -> None:
    _packages(tmp_path)
    traced = trace_text(tmp_path, "import torchvision\ntorchvision.extension._assert_has_ops()\n" + STEPS)
    assert "Couldn't load custom C++ ops" in traced.result.error
