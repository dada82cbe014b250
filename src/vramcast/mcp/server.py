"""The tools behind the official SDK: listed with their schemas, answered in worker threads, over standard input and output."""

import time
from collections.abc import Callable
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from vramcast import __version__
from vramcast.errors import VramcastError, unknown_name
from vramcast.mcp.tools import ToolAnswer, tools_of
from vramcast.mcp.words import Helps
from vramcast.untrusted import printable

_AT_ONCE = 2  # answers worked on at a time; others wait
_BETWEEN_S = 0.5  # between two notes of progress
_INSTRUCTIONS = (
    "vramcast forecasts GPU memory, fit, speed and cost of serving and training large language models, by rules of each engine's "
    "and framework's release. Ask it instead of estimating: serve and train for one question, plan for what to run, explain for "
    "an out-of-memory message, read for a command or a configuration. State the verdict, its probability and what was assumed."
)


def build_server(helps: Helps, *, hub: bool = False) -> "Server[dict[str, Any]]":
    """The server with its five tools. ``helps``: descriptions of their words; ``hub``: whether the network may be asked."""
    tools = {tool.name: tool for tool in tools_of(helps)}
    limiter: list[anyio.CapacityLimiter] = []

    async def listed(_: Any, __: PaginatedRequestParams | None) -> ListToolsResult:
        marks = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=hub)
        return ListToolsResult(
            tools=[
                Tool(name=one.name, title=one.title, description=one.about, input_schema=one.takes, output_schema=one.gives,
                     annotations=marks)
                for one in tools.values()
            ]
        )  # fmt: skip

    async def called(context: Any, asked: CallToolRequestParams) -> CallToolResult:
        tool = tools.get(asked.name)
        if tool is None:
            return _refused(unknown_name("tool", asked.name, tools))
        if not limiter:
            limiter.append(anyio.CapacityLimiter(_AT_ONCE))
        watch = _watch(context)
        try:
            told = await anyio.to_thread.run_sync(
                lambda: tool.answer(asked.arguments or {}, watch), limiter=limiter[0], abandon_on_cancel=True
            )
        except VramcastError as error:
            return _refused(error)
        return _answered(told)

    return Server("vramcast", version=__version__, title="vramcast", instructions=_INSTRUCTIONS, on_list_tools=listed,
                  on_call_tool=called)  # fmt: skip


def _watch(context: Any) -> Callable[[int, int], None]:
    """Notes of progress from a worker thread, no more than two a second."""
    last = [time.monotonic()]

    def watch(done: int, of: int) -> None:
        if time.monotonic() - last[0] < _BETWEEN_S:
            return
        last[0] = time.monotonic()
        anyio.from_thread.run(context.session.report_progress, done, of)

    return watch


def _answered(told: ToolAnswer) -> CallToolResult:
    """The page as text, which most assistants read, and the whole object beside it."""
    return CallToolResult(content=[TextContent(text=told.page)], structured_content=told.body)


def _refused(error: Exception) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=printable(" ".join(str(error).split())))], is_error=True)


def serve_stdio(helps: Helps, *, hub: bool) -> None:
    """Answer over standard input and output until the assistant closes them."""
    server = build_server(helps, hub=hub)

    async def answering() -> None:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(answering)
