"""Which libraries are installed, in which versions: they decide what a trace or a measurement finds, and are part of both."""

import importlib.metadata
from collections.abc import Iterable


def installed(names: Iterable[str]) -> dict[str, str]:
    """Versions of those distributions that are installed, by name."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
