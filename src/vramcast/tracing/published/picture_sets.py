"""torchvision's data sets of pictures as they are published: how many pictures, of what size, with what targets."""

from functools import cache
from importlib.resources import files

import msgspec


class PictureSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A data set of pictures.

    ``size``: width, height and channels. ``argument``: what names its split. ``target``: what goes with a picture, by the value
    of the argument ``by``. ``array``: the order of dimensions of ``.data``, with the name of what holds the labels.
    ``year``: the one that the counts are of.
    """

    counts: dict[str, int]
    size: tuple[int, int, int]
    target: dict[str, str]
    argument: str = ""
    by: str = ""
    array: str = ""
    labels: str = ""
    year: str = ""

    def count(self, split: object) -> int | None:
        """Pictures of a split, of which True is the training set; None where that is not known."""
        name = {True: "train", False: "test"}[split] if isinstance(split, bool) else str(split or "")
        return self.counts.get(name)


@cache
def picture_sets() -> dict[str, dict[str, PictureSet]]:
    """The table: by module of torchvision.datasets, then by class."""
    text = files(__package__).joinpath("picture_sets.toml").read_text(encoding="utf-8")
    return msgspec.toml.decode(text, type=dict[str, dict[str, PictureSet]])
