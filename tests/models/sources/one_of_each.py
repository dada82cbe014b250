"""The first catalogued model of every family, for laws that hold of all."""

from collections.abc import Iterator

from vramcast.models import reading
from vramcast.models.inventory import Model


def _models() -> Iterator[Model]:
    seen: set[str] = set()
    for place in reading.read_index().models.values():
        model = reading.model_of(reading.row_at(place))
        if model.family not in seen:
            seen.add(model.family)
            yield model


FAMILIES = tuple(_models())
