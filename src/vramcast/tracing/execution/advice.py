"""What a script that stopped for want of a network can be given instead."""

import re
from collections.abc import Iterator

_KINDS = frozenset({
    "URLError", "gaierror", "ConnectionError", "ConnectError", "NewConnectionError", "MaxRetryError", "NameResolutionError",
    "OfflineModeIsEnabled", "LocalEntryNotFoundError", "ClientConnectorError", "ClientConnectorDNSError", "EntryNotFoundError",
})  # fmt: skip
_WORDS = re.compile(
    r"couldn't (connect|reach)|[Oo]ffline ?[Mm]ode|Name or service not known|Temporary failure in name resolution"
)
_NAMED = re.compile(r"'([\w.-]+/[\w.-]+)'")
_ADDRESS = re.compile(r"https?://[\w.:-]+(?:/[^\s'\"<>)]*)?")
_HUB = "huggingface.co"


def without_network(failure: BaseException) -> str:
    """Where a failure is that of a network that is not here: the line that makes its file local; else ""."""
    causes = list(_chain(failure))
    if not any(type(each).__name__ in _KINDS or _WORDS.search(str(each)) for each in causes):
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
