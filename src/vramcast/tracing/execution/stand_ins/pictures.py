"""torchvision's sets of pictures where there is no network to fetch them from: as many pictures, of that size, all black.

Memory hangs on how many there are and on their shape, both of which are published; the answer says that they were made up.
Classes that hold their pictures in an array get it, the others answer for every number of a picture.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch

from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.imported import asked_without_try, when_imported
from vramcast.tracing.published.picture_sets import PictureSet, picture_sets

Fill = Callable[[Any, bool], None]
_LETTERS = {  # EMNIST's splits: pictures to train on, to test on, classes (torchvision, datasets/mnist.py; Cohen et al. 2017)
    "byclass": (697_932, 116_323, 62),
    "bymerge": (697_932, 116_323, 47),
    "balanced": (112_800, 18_800, 47),
    "letters": (124_800, 20_800, 27),
    "digits": (240_000, 40_000, 10),
    "mnist": (60_000, 10_000, 10),
}


def install(session: Session) -> None:
    """MNIST with its kin (FashionMNIST, KMNIST, EMNIST), CIFAR-10 and CIFAR-100, and those of ``picture_sets.toml``."""
    for module, name, fill in (("mnist", "MNIST", _digits), ("cifar", "CIFAR10", _photographs)):
        patch = functools.partial(_filled, session, name, fill)
        when_imported(f"torchvision.datasets.{module}", patch)
    for module, kinds in picture_sets().items():
        when_imported(f"torchvision.datasets.{module}", functools.partial(_of_the_table, session, kinds))


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
    from torchvision.datasets import EMNIST  # type: ignore[import-not-found]

    training, testing, kinds = _LETTERS[pictures.split if isinstance(pictures, EMNIST) else "mnist"]
    count = training if train else testing
    pictures.data = torch.zeros((count, 28, 28), dtype=torch.uint8)
    pictures.targets = torch.arange(count) % kinds


def _photographs(pictures: Any, train: bool) -> None:
    import numpy as np

    count, kinds = 50_000 if train else 10_000, 100 if "fine" in pictures.meta["key"] else 10
    pictures.data = np.zeros((count, 32, 32, 3), dtype=np.uint8)
    pictures.targets = [i % kinds for i in range(count)]
    _classes(pictures, kinds)


def _classes(pictures: Any, count: int) -> None:
    pictures.classes = [str(i) for i in range(count)]
    pictures.class_to_idx = {name: i for i, name in enumerate(pictures.classes)}


def _of_the_table(session: Session, kinds: dict[str, PictureSet], module: Any) -> None:
    for name, published in kinds.items():
        _made_up(session, getattr(module, name), published)


def _made_up(session: Session, kind: Any, published: PictureSet) -> None:
    """Let a class answer with made-up pictures where its own are not here."""
    original, item, length = kind.__init__, kind.__getitem__, kind.__len__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init(pictures: Any, *args: Any, **options: Any) -> None:
        try:
            original(pictures, *args, **options)
        except (OSError, RuntimeError):  # of urllib; without a file, or gdown
            if not asked_without_try(sys._getframe(1)):  # the program has something else to do
                raise
            given = signature.bind(pictures, *args, **options)
            given.apply_defaults()
            named = given.arguments | given.arguments.get("kwargs", {})
            count, targets = _asked(published, named)
            if not count or not targets:
                raise
            _begin(pictures, count, targets, published, named)
            shape = " x ".join(str(each) for each in published.size)
            session.notes[f"{type(pictures).__name__} is not here: {count:,} pictures of {shape} are made up"] = None

    kind.__init__ = init
    kind.__getitem__ = lambda pictures, index: (
        _picture(pictures, index) if hasattr(pictures, "_made_up") else item(pictures, index)
    )
    kind.__len__ = lambda pictures: pictures._made_up[0] if hasattr(pictures, "_made_up") else length(pictures)


def _asked(published: PictureSet, named: dict[str, Any]) -> tuple[int | None, list[str]]:
    """How many pictures, and the kinds of their targets; None or nothing where that is not known."""
    if published.year and str(named.get("year")) != published.year:
        return None, []
    by = named.get(published.by, "") if published.by else ""
    kinds = [published.target.get(str(each), "") for each in (by if isinstance(by, list | tuple) else [by])]
    return published.count(named.get(published.argument)), kinds if all(kinds) else []


def _begin(pictures: Any, count: int, targets: list[str], published: PictureSet, named: dict[str, Any]) -> None:
    """Give an object what its class would have read."""
    from torchvision.datasets import VisionDataset

    options = {name: named[name] for name in ("transforms", "transform", "target_transform") if named.get(name) is not None}
    VisionDataset.__init__(pictures, named["root"], **options)
    if published.argument:
        setattr(pictures, published.argument, named.get(published.argument))
    kinds = int(targets[0].partition(":")[2]) if targets[0].startswith("label:") else 0
    if kinds:
        _classes(pictures, kinds)
    if published.array:
        _hold(pictures, count, kinds, published)
    else:
        pictures._made_up = (count, tuple(targets), published.size)
        if kinds:
            pictures.targets = pictures._labels = [i % kinds for i in range(count)]


def _hold(pictures: Any, count: int, kinds: int, published: PictureSet) -> None:
    """The arrays of a class that holds its pictures in memory."""
    import numpy as np

    width, height, channels = published.size
    shapes = {"NCHW": (count, channels, height, width), "NHW": (count, height, width)}
    pictures.data = np.zeros(shapes[published.array], dtype=np.uint8)
    labels = np.arange(count) % kinds
    setattr(pictures, published.labels, labels if published.labels == "labels" else labels.tolist())


def _picture(pictures: Any, index: int) -> tuple[Any, Any]:
    """One picture and what goes with it, as the program's transforms make them."""
    from PIL import Image  # type: ignore[import-not-found]

    count, kinds, (width, height, channels) = pictures._made_up
    if not -count <= index < count:
        raise IndexError(f"picture {index} of {count}")
    picture = Image.new("RGB" if channels == 3 else "L", (width, height))
    made = [_target(kind, index % count, width, height) for kind in kinds]
    target = made[0] if len(made) == 1 else tuple(made)
    return pictures.transforms(picture, target) if pictures.transforms is not None else (picture, target)


def _target(kind: str, number: int, width: int, height: int) -> Any:
    """What goes with a picture: a class, a picture of classes, numbers, or boxes."""
    from PIL import Image

    name, _, size = kind.partition(":")
    if name == "label":
        return number % int(size)
    if name == "mask":
        return Image.new("L", (width, height))
    if name in {"number", "numbers"}:
        return torch.zeros(int(size), dtype=torch.int64) if size else torch.tensor(0)
    box = {"xmin": "48", "ymin": "48", "xmax": str(width // 2), "ymax": str(height // 2)}
    found = {"name": "person", "difficult": "0", "truncated": "0", "pose": "Unspecified", "bndbox": box}
    sized = {"width": str(width), "height": str(height), "depth": "3"}
    return {"annotation": {"filename": f"{number:06d}.jpg", "size": sized, "object": [found], "segmented": "0"}}
