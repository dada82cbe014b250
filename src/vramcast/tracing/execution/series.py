"""Several traces in one process, one after the other: importing the libraries costs more than a small trace."""

from collections.abc import Iterable, Iterator

from vramcast.tracing.execution import steps
from vramcast.tracing.execution.session import Session, describe
from vramcast.tracing.execution.stand_ins import four_bit, patches
from vramcast.tracing.request import TraceRequest, TraceResult


def trace_each(requests: Iterable[TraceRequest], *, backend: str = "cuda") -> Iterator[tuple[TraceRequest, TraceResult]]:
    """The requests with their results; a request that fails has an ``error`` and does not stop the others."""
    session: Session | None = None
    for request in requests:
        if session is None:
            session = Session(backend=backend, device=request.device)
            patches.transformers()
            four_bit.install(session)
        session.restart(request.attention_kernels)
        error = ""
        with steps.timed() as spent:
            try:
                steps.run(request, session)
            except Exception as failure:  # each request's failure is its own finding
                error = describe(failure)
        yield request, session.result(seconds=spent[0], notes=(), error=error)
