"""The first catalogued model of every family, for laws that hold of all."""

from collections.abc import Iterator

from vramcast.models import catalogue
from vramcast.models.inventory import Model


def _models() -> Iterator[Model]:
    seen: set[str] = set()
    for place in catalogue.read_index().models.values():
        model = catalogue.model_of(catalogue.row_at(place))
        if model.family not in seen:
            seen.add(model.family)
            yield model


FAMILIES = tuple(_models())
