"""PyTorch's out-of-memory message, in any of its four generations: what was wanted, who held what, and what would help.

Generations (c10/cuda/CUDACachingAllocator.cpp by release): up to 2.0 one bracket with "already allocated" and "reserved in
total"; 2.1-2.2 sentences with "capacty" misspelt; then the same spelt right with a hint at PYTORCH_CUDA_ALLOC_CONF, from 2.9 at
PYTORCH_ALLOC_CONF. Later ones add what each process holds; HIP builds say HIP.
"""

import re

import msgspec

from vramcast.reading.stack import Moment, moment_of
from vramcast.units import GiB, KiB, MiB, gib
from vramcast.untrusted import real_number, whole_number

_LATE = 10  # steps: a run that held so many has its states and its first long samples behind it
_UNITS = {"bytes": 1, "KiB": KiB, "MiB": MiB, "GiB": GiB}
_SIZE = r"([0-9]{1,18}(?:\.[0-9]{1,18})?)(?![\d.])\s*(bytes|KiB|MiB|GiB)"
_START = re.compile(rf"(CUDA|HIP|NPU|XPU) out of memory\.\s*Tried to allocate\s+{_SIZE}")
_CARD = re.compile(r"(?:GPU|NPU|XPU)\s*(\d+)")
_FIELDS = {
    "capacity": (rf"total capac(?:i)?ty of\s+{_SIZE}", rf"{_SIZE}\s+total capacity"),
    "free": (rf"of which\s+{_SIZE}\s+is free", rf"{_SIZE}\s+free"),
    "process": (rf"this process has\s+{_SIZE}\s+memory in use",),
    "allocated": (rf"allocated memory\s+{_SIZE}\s+is allocated by PyTorch", rf"{_SIZE}\s+already allocated"),
    "cached": (rf"{_SIZE}\s+is reserved by PyTorch but unallocated",),
    "reserved": (rf"{_SIZE}\s+reserved in total by PyTorch",),
}
# A progress bar of tqdm's, as the Trainer draws it: 1423/3846 [4:31:02<7:41:29
_STEP = re.compile(r"(?<!\d)(\d{1,9})/(\d{1,9}) \[[\d:]{4,12}<")
_TENANT = re.compile(rf"(?<!this )[Pp]rocess\s+(\d+)\s+has\s+{_SIZE}\s+memory in use")


class OutOfMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The message's numbers in bytes, and what follows from them; None where the message does not say.

    ``cached_bytes``: reserved by PyTorch but not allocated. ``outside_bytes``: this process beyond PyTorch (context,
    NCCL, libraries). ``others_bytes``: other processes on the card. ``short_bytes``: at least this much more was needed.
    ``step``: the last step that a progress bar above it counted, and of how many.
    """

    backend: str
    gpu: int | None
    wanted_bytes: int
    capacity_bytes: int | None = None
    free_bytes: int | None = None
    allocated_bytes: int | None = None
    cached_bytes: int | None = None
    process_bytes: int | None = None
    tenants: dict[int, int] = {}
    moment: Moment | None = None
    step: tuple[int, int] | None = None

    @property
    def reserved_bytes(self) -> int | None:
        """What PyTorch holds from the driver."""
        return _sum(self.allocated_bytes, self.cached_bytes)

    @property
    def outside_bytes(self) -> int | None:
        """What this process holds outside PyTorch's allocator."""
        if self.process_bytes is None or self.reserved_bytes is None:
            return None
        return max(0, self.process_bytes - self.reserved_bytes)

    @property
    def others_bytes(self) -> int | None:
        """What other processes hold on the card, when this one's share is told."""
        if self.capacity_bytes is None or self.free_bytes is None or self.process_bytes is None:
            return None
        return max(0, self.capacity_bytes - self.free_bytes - self.process_bytes)

    @property
    def short_bytes(self) -> int | None:
        """How much more the failed request needed, at least."""
        return None if self.free_bytes is None else max(0, self.wanted_bytes - self.free_bytes)

    @property
    def unexplained_bytes(self) -> int | None:
        """What neither PyTorch nor free memory accounts for, where the message does not tell this process from others."""
        if (
            self.process_bytes is not None
            or self.capacity_bytes is None
            or self.free_bytes is None
            or self.reserved_bytes is None
        ):
            return None
        return max(0, self.capacity_bytes - self.free_bytes - self.reserved_bytes)

    def advice(self) -> tuple[str, ...]:
        """What to change, the surest first: by what ran then, where a traceback tells, else by the size of the request."""
        found = [*self._late(), *(self.moment.advice if self.moment else ())]
        if self.free_bytes is not None and self.free_bytes >= self.wanted_bytes:
            found.append(
                "more was free than was asked for: a limit per process (set_per_process_memory_fraction), or the driver's memory "
                "in pieces: restart the process"
            )
        if (
            self.others_bytes
            and self.short_bytes is not None
            and self.others_bytes > self.short_bytes
            and self.others_bytes > MiB * 64
        ):
            found.append("another process holds enough to explain it: stop it, or choose another card with CUDA_VISIBLE_DEVICES")
        if (pieces := self._in_pieces()) is not None:
            found.insert(0 if self._is_fragmented else len(found), pieces)
        if self.wanted_bytes >= GiB and self.moment is None:
            found.append(
                "one tensor of that size is usually logits or attention scores: a fused or chunked loss, or a smaller micro-batch"
            )
        found.append(
            "see what fills the card: vramcast train or serve with the same settings, or vramcast explain on a memory snapshot"
        )
        return tuple(found)

    @property
    def _is_fragmented(self) -> bool:
        """Whether what PyTorch held unused is the first thing to mend: twice the request, and a tenth of what tensors hold."""
        cached = self.cached_bytes or 0
        return cached >= 2 * self.wanted_bytes and cached >= (self.allocated_bytes or 0) / 10

    def _in_pieces(self) -> str | None:
        if self.cached_bytes is None or self.cached_bytes < self.wanted_bytes:
            return None
        held = f"{gib(self.cached_bytes)} were free in pieces inside PyTorch, {gib(self.wanted_bytes)} were wanted"
        return f"PYTORCH_ALLOC_CONF=expandable_segments:True removes that fragmentation: {held}"

    def _late(self) -> tuple[str, ...]:
        """What a run that held for many steps says."""
        if self.step is None or self.step[0] < _LATE:
            return ()
        done, of = self.step
        return (
            f"{done:,} of {of:,} steps held: the longest samples decide, or fragmentation that grew; vramcast train with --seq "
            "as long as the longest sample says what they need, and a cut of longer ones bounds it",
        )


def read_out_of_memory(text: str) -> OutOfMemory | None:
    """The last such message in a log or traceback, or None."""
    joined = _joined(text)
    starts = list(_START.finditer(joined))
    if not starts:
        return None
    message = joined[starts[-1].start() : starts[-1].start() + 4000]
    found = {name: _first(message, patterns) for name, patterns in _FIELDS.items()}
    allocated, reserved = found["allocated"], found["reserved"]
    cached = found["cached"] if reserved is None or allocated is None else max(0, reserved - allocated)
    card = _CARD.search(message)
    tenants = {whole_number(pid) or 0: _bytes(number, unit) for pid, number, unit in _TENANT.findall(message)}
    process = found["process"]
    if process is None and len(tenants) == 1:
        (process,) = tenants.values()
        tenants = {}
    return OutOfMemory(
        backend=starts[-1][1],
        gpu=whole_number(card[1]) if card else None,
        wanted_bytes=_bytes(starts[-1][2], starts[-1][3]),
        capacity_bytes=found["capacity"],
        free_bytes=found["free"],
        allocated_bytes=allocated,
        cached_bytes=cached,
        process_bytes=process,
        tenants=tenants,
        moment=moment_of(text),
        step=_step_before(text),
    )


def _step_before(text: str) -> tuple[int, int] | None:
    """The last step of the last progress bar, and of how many; None without one."""
    bars = list(_STEP.finditer(text))
    if not bars:
        return None
    last = bars[-1]
    return whole_number(last[1]) or 0, whole_number(last[2]) or 0


def _joined(text: str) -> str:
    """The text with its line breaks as spaces: terminals and logs wrap the message anywhere."""
    return re.sub(r"\s+", " ", text)


def _first(message: str, patterns: tuple[str, ...]) -> int | None:
    for pattern in patterns:
        match = re.search(pattern, message)
        if match:
            return _bytes(match[1], match[2])
    return None


def _bytes(number: str, unit: str) -> int:
    return round((real_number(number) or 0) * _UNITS[unit])


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None else first + (second or 0)
