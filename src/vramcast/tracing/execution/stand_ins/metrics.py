"""Metrics that ``evaluate`` would fetch from the hub: where it cannot, each of them is 1."""

from typing import Any

from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.imported import when_imported


class Metric:
    """A metric that takes everything and finds 1; no value that a traced model predicts means anything."""

    def __init__(self, name: str) -> None:
        self.name = name

    def add(self, *_: Any, **__: Any) -> None:
        """See evaluate.EvaluationModule."""

    add_batch = add

    def compute(self, *_: Any, **__: Any) -> dict[str, float]:
        """See evaluate.EvaluationModule."""
        return {self.name: 1.0}


def install(session: Session) -> None:
    """Answer where ``evaluate.load`` finds no metric, with a note."""
    when_imported("evaluate", lambda module: _patch(module, session))


def _patch(module: Any, session: Session) -> None:
    original = module.load

    def load(path: str, *args: Any, **options: Any) -> Any:
        try:
            return original(path, *args, **options)
        except (OSError, ImportError) as failure:
            session.notes[f"evaluate.load({path!r}) found no metric ({type(failure).__name__}): its values are made up"] = None
            return Metric(path.rpartition("/")[2])

    module.load = load
