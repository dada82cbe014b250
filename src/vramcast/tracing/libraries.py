"""Which libraries are installed, in which versions: they decide what a trace or a measurement finds, and are part of both."""

import importlib.metadata
from collections.abc import Iterable

from vramcast.errors import UntraceableError


def installed(names: Iterable[str]) -> dict[str, str]:
    """Versions of those distributions that are installed, by name."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


TESTED = {"torch": "2.13", "transformers": "5.23"}


def lacking(reason: object) -> UntraceableError:
    """The error for a symbol that the installed libraries do not have, with the versions that do."""
    here = ", ".join(f"{name} {version}" for name, version in installed(TESTED).items()) or "the installed libraries"
    with_it = " and ".join(f"{name} {version}" for name, version in TESTED.items())
    return UntraceableError(f"{here}: a trace needs what is not there ({reason}); it works with {with_it}")
