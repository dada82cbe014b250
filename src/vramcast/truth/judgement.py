"""What a measured row says beside what the program forecasts for it: the value that row converters return.

A converter (one module per row format in ``truth/rows``) turns a raw row into a question, asks the engine or framework rules,
and pairs each measured figure with the forecast one. It raises Unexpressed when the row cannot be asked; it never guesses.
"""

import re

import msgspec

# A stored file whose repository was not kept: only its number is known.
_UNNAMED = re.compile(r"(?:stored )?public (?:GitHub )?file,? (?:read_file id )?(\d+)")
_REPOSITORY = re.compile(
    r"(?:https?://)?(?:github\.com/|github:)?([\w.-]+/[\w.-]+?)(?=[@:/ ]|$)(?:/((?:pull|issues|discussions)/\d+))?"
)


class Unexpressed(Exception):  # noqa: N818 - not a failure of the program: a named outcome of judging a row
    """The row cannot be asked as a question; the text is the reason shown in accuracy tables."""


class Pair(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One figure, forecast and measured, in bytes (memory) or seconds or tokens per second (speed).

    ``measure``: the stable name of the figure: weights, kv_pool, kv_buffer, state, model_buffer, compute_buffer, activation,
    graphs, non_torch, total, allocated, reserved, device, static, ttft, tpot, step ... ``at``: which device or rank, when a row
    has several figures of one measure. ``slack``: half of the last printed digit when that is coarse; an error within it
    counts as zero. ``low``/``high``: the interval of the forecast when it is not the calibrated one. ``scale``: the unit of its
    errors, of a measure whose errors are bytes; ``certain``: what it surely comes to, below which no bar reaches.
    """

    measure: str
    predicted: float
    measured: float
    at: str = ""
    slack: float = 0
    low: float | None = None
    high: float | None = None
    scale: float = 0
    certain: float = 0


class Judgement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row, judged.

    ``keys``: what the row is grouped by; every converter gives ``engine`` (or framework) and ``source``, and what applies of
    ``version``, ``method``, ``kind`` (dense, moe, mla, swa, hybrid, vlm; several joined by "+"), ``quant``, ``recompute``,
    ``parallel``. ``quality``: A and B rows are scored, C rows count as expressed only. ``fit_called``: what the
    program says of the row's card (fits, tight, no), ``fit_actual``: ran or oom. ``unread``: words of the row that no rule reads.
    """

    id: str
    keys: dict[str, str]
    pairs: tuple[Pair, ...] = ()
    quality: str = "A"
    fit_called: str = ""
    fit_actual: str = ""
    unread: tuple[str, ...] = ()


def source_name(text: str) -> str:
    """Who reported it: a repository, or one thread in it; rows of one table or of one repository's files are one source.

    Errors of such rows are not independent, so macro figures and intervals weigh by this name.
    """
    match = _REPOSITORY.match(text)
    if not match:
        return public_source(text)
    return f"{match[1]}/{match[2]}" if match[2] else match[1]


def public_source(text: str) -> str:
    """The source as this project names it: a stored file whose repository was not kept is known by its number."""
    unnamed = _UNNAMED.match(text)
    return f"public file {unnamed[1]}" if unnamed else text
