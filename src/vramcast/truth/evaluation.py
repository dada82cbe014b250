"""Any file of measured rows or cases beside the forecasts: what ``vramcast evaluate`` answers."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from vramcast.errors import VramcastError
from vramcast.truth.judgement import Judgement, Unexpressed
from vramcast.truth.rows import Row, judge, read_rows, row_id
from vramcast.truth.scoring import Point, Score, fit, macro, points_of, scores, worst

SCHEMA = "vramcast/1"


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """Judged rows, those that could not be asked with the reason, and the points scored."""

    rows: int
    judgements: tuple[Judgement, ...]
    unexpressed: tuple[dict[str, str], ...]
    points: tuple[Point, ...]

    def scores(self) -> list[Score]:
        """Errors by measure and group."""
        return scores(self.points)

    def report(self, *, worst_rows: int = 10) -> dict[str, Any]:
        """The object that ``vramcast evaluate --json`` prints (DESIGN, the contract)."""
        return {
            "schema": SCHEMA,
            "rows": self.rows,
            "expressed": len(self.judgements),
            "unexpressed": list(self.unexpressed),
            "measures": [msgspec.to_builtins(score) for score in self.scores()],
            "macro": macro(self.points),
            "fit": fit(self.judgements),
            "worst": [_worst(point) for point in worst(self.points, worst_rows)],
            "unread": [{"id": judged.id, "words": list(judged.unread)} for judged in self.judgements if judged.unread],
        }


def evaluate(paths: Iterable[Path]) -> Evaluation:
    """Every row of these files, judged and scored.

    Raises MissingError, QuestionError or UnsafeFileError for a file that cannot be read; a row that cannot be asked is listed,
    never raised.
    """
    return evaluate_rows(row for path in paths for row in read_rows(path))


def evaluate_rows(rows: Iterable[Row]) -> Evaluation:
    """The same for rows already at hand."""
    judged: list[Judgement] = []
    unexpressed: list[dict[str, str]] = []
    for row in rows:
        try:
            judged.append(judge(row))
        except (Unexpressed, VramcastError) as error:
            unexpressed.append({"id": row_id(row), "reason": str(error)})
        except Exception as error:  # a malformed row must not cost the answer for all others
            unexpressed.append({"id": row_id(row), "reason": f"the converter failed on it: {type(error).__name__}: {error}"})
    return Evaluation(
        rows=len(judged) + len(unexpressed),
        judgements=tuple(judged),
        unexpressed=tuple(unexpressed),
        points=tuple(points_of(judged)),
    )


def _worst(point: Point) -> dict[str, Any]:
    ratio = point.predicted / point.measured if point.measured else None
    return {"id": point.id, "measure": point.measure, "predicted": point.predicted, "measured": point.measured, "ratio": ratio}
