"""Handlers that compute, kept off the loop that talks to everybody."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def in_thread(handler: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """The handler as a coroutine that runs it in a worker thread, with the context of its request."""

    @wraps(handler)
    async def called(*args: P.args, **words: P.kwargs) -> T:
        return await asyncio.to_thread(handler, *args, **words)

    return called
