"""A machine's own speed: three factors (host, bandwidth, compute) on every forecast, learned from its own runs, kept by name.

The laws speak of a class of cards; a card at hand may be power-capped, hot, virtual or badly fed by its host. Three factors are
what a handful of runs can tell apart. Each has a prior around 1 as wide as cards of a class differ (law errors on cards left
out), so that one run moves them a little and many runs decide.
"""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from vramcast.errors import MissingError, QuestionError

# Standard deviations of logarithms: of each factor over machines of a class, and of a measured time around its forecast.
PRIOR = {"host": 0.5, "bandwidth": 0.1, "compute": 0.15}
RESIDUAL = 0.08
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
_STEP, _ROUNDS = 0.02, 12


class Scales(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Factors on seconds: of the host's share, of what memory bandwidth binds, of what arithmetic binds."""

    host: float = 1.0
    bandwidth: float = 1.0
    compute: float = 1.0

    def of(self, binds: str) -> float:
        """The factor of an operation by what binds it."""
        if binds in ("bandwidth", "cold", "unit", "unpack", "scores"):
            return self.bandwidth
        return {"compute": self.compute, "tail": self.compute, "host": self.host, "launch": self.host}.get(binds, 1.0)


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Factors learned from ``runs`` measured figures of one card, with the median error before and after."""

    name: str
    card: str
    scales: Scales
    runs: int
    error_before: float
    error_after: float


def fit(predict: Callable[[Scales], Sequence[float]], measured: Sequence[float]) -> Scales:
    """The most probable factors: least squares of log(forecast/measured) with the prior, by Gauss-Newton in the logarithms.

    ``predict`` gives the forecast of every measured figure (seconds) under given factors.
    """
    names, at = tuple(PRIOR), [0.0, 0.0, 0.0]
    for _ in range(_ROUNDS):
        base = _residuals(predict, measured, at)
        slopes = []
        for i in range(3):
            moved = [x + _STEP * (i == j) for j, x in enumerate(at)]
            slopes.append([(b - a) / _STEP for a, b in zip(base, _residuals(predict, measured, moved), strict=True)])
        at = [x + d for x, d in zip(at, _newton(base, slopes, at, names), strict=True)]
    return _scales(at)


def _residuals(predict: Callable[[Scales], Sequence[float]], measured: Sequence[float], at: Sequence[float]) -> list[float]:
    return [math.log(p / m) / RESIDUAL for p, m in zip(predict(_scales(at)), measured, strict=True)]


def _scales(at: Sequence[float]) -> Scales:
    host, bandwidth, compute = (math.exp(max(-1.5, min(1.5, x))) for x in at)
    return Scales(host=host, bandwidth=bandwidth, compute=compute)


def _newton(base: list[float], slopes: list[list[float]], at: Sequence[float], names: Sequence[str]) -> list[float]:
    """The step that solves (J'J + P) d = -(J'r + P x), three equations by Cramer's rule."""
    prior = [1 / PRIOR[name] ** 2 for name in names]
    matrix = [[_dot(slopes[i], slopes[j]) + prior[i] * (i == j) for j in range(3)] for i in range(3)]
    right = [-_dot(slopes[i], base) - prior[i] * at[i] for i in range(3)]
    whole = _det(matrix)
    return [_det([[right[r] if c == i else matrix[r][c] for c in range(3)] for r in range(3)]) / whole for i in range(3)]


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _det(m: list[list[float]]) -> float:
    (a, b, c), (d, e, f), (g, h, i) = m
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)


def folder() -> Path:
    """Where profiles are kept."""
    import platformdirs

    return platformdirs.user_config_path("vramcast") / "speed"


def save(profile: Profile) -> Path:
    """Write a profile; returns its file. Raises QuestionError for a name that could not be a file's."""
    if not _NAME.fullmatch(profile.name):
        raise QuestionError(f"profile name {profile.name[:40]!r}: letters, digits, dots and dashes, for example lab-4090")
    path = folder() / f"{profile.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(profile), indent=1) + b"\n")
    return path


def load(name: str) -> Profile:
    """A profile by its name. Raises MissingError where there is none, naming those that there are."""
    path = folder() / f"{name}.json"
    if not _NAME.fullmatch(name) or not path.is_file():
        known = sorted(p.stem for p in folder().glob("*.json")) if folder().is_dir() else []
        raise MissingError(f"no profile {name[:40]!r}: known are {', '.join(known) or 'none'}; vramcast calibrate makes one")
    return msgspec.json.decode(path.read_bytes(), type=Profile)
