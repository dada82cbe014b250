"""What ``pkg_resources`` held that programs ask of it; setuptools 81 and later have it no more."""

from collections.abc import Iterator
from importlib.metadata import Distribution, entry_points
from importlib.metadata import PackageNotFoundError as DistributionNotFound
from importlib.metadata import distribution as get_distribution
from importlib.resources import files
from typing import Any

from packaging.version import parse as parse_version

__all__ = [
    "Distribution",
    "DistributionNotFound",
    "VersionConflict",
    "get_distribution",
    "iter_entry_points",
    "packaging",
    "parse_version",
    "require",
    "resource_filename",
    "resource_stream",
    "resource_string",
]

import packaging


class VersionConflict(Exception):  # noqa: N818 - its name there
    """Never raised: versions are not compared here."""


def resource_filename(package: str, name: str) -> str:
    """Where a file of a package lies."""
    return str(files(package).joinpath(name))


def resource_string(package: str, name: str) -> bytes:
    """What a file of a package holds."""
    return files(package).joinpath(name).read_bytes()


def resource_stream(package: str, name: str) -> Any:
    """A file of a package, opened."""
    return files(package).joinpath(name).open("rb")


def iter_entry_points(group: str, name: str | None = None) -> Iterator[Any]:
    """The entry points of a group."""
    return iter(entry_points(group=group, name=name) if name else entry_points(group=group))


def require(*_: str) -> list[Distribution]:
    """Versions are not compared: what is installed runs."""
    return []
