"""torchvision's small sets of pictures where there is no network to fetch them from: as many pictures, of that size, all black.

Memory hangs on how many there are and on their shape, both of which are known; the answer says that they were made up.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.imported import when_imported

Fill = Callable[[Any, bool], None]


def install(session: Session) -> None:
    """MNIST with its kin (FashionMNIST, KMNIST), CIFAR-10 and CIFAR-100."""
    for module, name, fill in (("mnist", "MNIST", _digits), ("cifar", "CIFAR10", _photographs)):
        patch = functools.partial(_filled, session, name, fill)
        when_imported(f"torchvision.datasets.{module}", patch)


def _filled(session: Session, name: str, fill: Fill, module: Any) -> None:
    kind = getattr(module, name)
    original = kind.__init__

    @functools.wraps(original)
    def init(pictures: Any, root: Any, train: bool = True, *args: Any, **options: Any) -> None:
        try:
            original(pictures, root, train, *args, **options)
        except (OSError, RuntimeError):  # of urllib; one for each mirror
            fill(pictures, train)
            session.notes[f"{type(pictures).__name__} is not here: its pictures are made up"] = None

    kind.__init__ = init


def _digits(pictures: Any, train: bool) -> None:
    count = 60_000 if train else 10_000
    pictures.data = torch.zeros((count, 28, 28), dtype=torch.uint8)
    pictures.targets = torch.arange(count) % 10


def _photographs(pictures: Any, train: bool) -> None:
    import numpy as np

    count, kinds = 50_000 if train else 10_000, 100 if "fine" in pictures.meta["key"] else 10
    pictures.data = np.zeros((count, 32, 32, 3), dtype=np.uint8)
    pictures.targets = [i % kinds for i in range(count)]
    pictures.classes = [str(i) for i in range(kinds)]
    pictures.class_to_idx = {name: i for i, name in enumerate(pictures.classes)}
