"""Which failures are those of a network that is not here, and what a script that stopped for want of one can be given instead."""

import errno
import re
from collections.abc import Iterator

# Exceptions of a line that was not made, by the name of their class or of one that it derives from: of Python, urllib3, requests,
# httpx, aiohttp and huggingface_hub. What a server answered (HTTPError, a repository without that file) is none of them.
_KINDS = frozenset({
    "gaierror", "ConnectionError", "ConnectError", "ConnectTimeout", "ConnectTimeoutError", "ReadTimeout", "ReadTimeoutError",
    "NewConnectionError", "MaxRetryError", "NameResolutionError", "ProxyError", "OfflineModeIsEnabled", "LocalEntryNotFoundError",
    "ClientConnectorError", "ClientConnectorDNSError",
})  # fmt: skip
_OTHERS = frozenset({"BrokenPipeError", "HTTPError"})  # derive from such a class, and are no want of a network
_WORDS = re.compile(
    r"couldn't (connect|reach)|[Oo]ffline ?[Mm]ode|Name or service not known|Temporary failure in name resolution"
    r"|no internet connection|[Nn]o route to"
)
_NAMED = re.compile(r"'([\w.-]+/[\w.-]+)'")
_ADDRESS = re.compile(r"https?://[\w.:-]+(?:/[^\s'\"<>)]*)?")
_HUB = "huggingface.co"


def is_network(failure: BaseException) -> bool:
    """Whether a failure, or what it was raised from, is that of a line that was not made; no other is answered by a stand-in."""
    return any(_unreached(each) for each in _chain(failure))


def _unreached(failure: BaseException) -> bool:
    kinds = {kind.__name__ for kind in type(failure).__mro__}
    if kinds & _OTHERS:
        return False
    reason = getattr(failure, "reason", None)  # of urllib's URLError, which also stands for a file that is not there
    if "URLError" in kinds:
        lost = isinstance(reason, TimeoutError) or (isinstance(reason, OSError) and _unreached(reason))
        return lost or bool(_WORDS.search(str(reason)))
    if _between_processes(failure):
        return False
    cut = isinstance(failure, OSError) and failure.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH)
    return cut or bool(kinds & _KINDS) or bool(_WORDS.search(str(failure)))


def _between_processes(failure: BaseException) -> bool:
    """Whether a failure is that of a pipe to a process of the program's own, which has ended."""
    trace = failure.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and "multiprocessing" in trace.tb_frame.f_code.co_filename


def without_network(failure: BaseException) -> str:
    """Where a failure is that of a network that is not here: the line that makes its file local; else ""."""
    causes = list(_chain(failure))
    absent = any(type(each).__name__ in {"EntryNotFoundError", "RemoteEntryNotFoundError"} for each in causes)
    if not absent and not is_network(failure):
        return ""
    told = " ".join(part for cause in causes for part in (str(cause), *getattr(cause, "__notes__", ())))
    if (named := _NAMED.search(told)) and ("hub" in told.lower() or _HUB in told):
        return (
            f"; it asks the hub: once on a machine with a network, hf download {named[1]} --local-dir DIR, and name DIR instead"
        )
    address = next((found for found in _ADDRESS.findall(told) if _HUB not in found), "")
    what = f"{address} " if address else ""
    return f"; it asks the network: fetch {what}once, put it where the script looks, and trace again"


def _chain(failure: BaseException) -> Iterator[BaseException]:
    seen, each = set[int](), failure
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or each.__context__  # type: ignore[assignment]
