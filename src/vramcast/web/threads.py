"""Handlers that compute, kept off the loop that talks to everybody, and answers that are worked out once."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, wraps
from threading import Lock, Semaphore
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Key = tuple[tuple[str, Any], ...]
_POOL = ThreadPoolExecutor(max_workers=64, thread_name_prefix="answer")  # most of them wait for their turn
KEPT = 512  # answers remembered, some 20 kB each


def in_thread(handler: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """The handler as a coroutine that runs it in a worker thread, with the context of its request."""

    @wraps(handler)
    async def called(*args: P.args, **words: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(_POOL, partial(copy_context().run, handler, *args, **words))

    return called


class Answers(Generic[T]):
    """The last answers by the words of their question; errors are not kept.

    ``turn``: how many are worked out at once; the others wait, because threads that share the interpreter all end as late as
    the last. Who asks what is being worked out waits for that answer, or for its error, and takes no turn.
    """

    def __init__(self, ask: Callable[[dict[str, Any]], T], *, turn: Semaphore) -> None:
        self._ask, self._turn, self._lock = ask, turn, Lock()
        self._known: dict[Key, T] = {}
        self._begun: dict[Key, Future[T]] = {}

    def of(self, words: dict[str, Any]) -> T:
        """The answer. Raises as ``ask`` does."""
        key = tuple(sorted(words.items()))
        with self._lock:
            if (known := self._known.get(key)) is not None:
                return known
            begun = self._begun.get(key)
            if begun is None:
                own = self._begun[key] = Future()
        return begun.result() if begun is not None else self._work_out(key, words, own)

    def _work_out(self, key: Key, words: dict[str, Any], own: Future[T]) -> T:
        try:
            with self._turn:
                found = self._ask(words)
        except BaseException as error:
            with self._lock:
                del self._begun[key]
            own.set_exception(error)
            raise
        with self._lock:
            for oldest in [*self._known][: len(self._known) + 1 - KEPT] if len(self._known) >= KEPT else ():
                self._known.pop(oldest, None)
            self._known[key] = found
            del self._begun[key]
        own.set_result(found)
        return found
