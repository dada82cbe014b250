"""Four generations of one message, as people paste them: numbers read, shares derived, advice that follows from them.

Numbers are those of public threads (llama#82, s1#106, and others whose thread was not kept); the words are the library's.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.cli import run
from vramcast.reading.out_of_memory import OutOfMemory, read_out_of_memory
from vramcast.units import GiB, MiB

OLDEST = (
    "RuntimeError: CUDA out of memory. Tried to allocate 86.00 MiB (GPU 0; 10.92 GiB total capacity; 10.27 GiB already "
    "allocated; "
    "37.06 MiB free; 10.27 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting "
    "max_split_size_mb"
)
MISSPELT = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.37 GiB. GPU 0 has a total capacty of 79.11 GiB "
    "of which "
    "2.93 GiB is free. Including non-PyTorch memory, this process has 76.17 GiB memory in use. Of the allocated memory "
    "68.61 GiB is "
    "allocated by PyTorch, and 5.63 GiB is reserved by PyTorch but unallocated."
)
CONTAINER = (
    "CUDA out of memory. Tried to allocate 9.37 GiB. GPU7 has a total capacity of 139.72 GiB of which 952.69 MiB is free. "
    "Process "
    "3373679 has 138.78 GiB memory in use. Of the allocated memory 130.77 GiB is allocated by PyTorch, and 4.76 GiB is "
    "reserved by "
    "PyTorch but unallocated. try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
)
TWO_TENANTS = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 750.00 MiB. GPU 0 has a total capacity of 14.57 GiB of "
    "which 646.75 "
    "MiB is free. Process 2493055 has 12.02 GiB memory in use. Including non-PyTorch memory, this process has 1.87 GiB "
    "memory in use. "
    "Of the allocated memory 1.46 GiB is allocated by PyTorch, and 208.23 MiB is reserved by PyTorch but unallocated. "
    "PYTORCH_ALLOC_CONF"
)
HIP = (
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 12.95 GiB. GPU 0 has a total capacity of 127.00 GiB of "
    "which 18.55 GiB "
    "is free. Of the allocated memory 99.37 GiB is allocated by PyTorch, and 121.80 MiB is reserved by PyTorch but unallocated."
)


def read(text: str) -> OutOfMemory:
    found = read_out_of_memory(text)
    assert found is not None
    return found


def gibibytes(size: int | None) -> float:
    assert size is not None
    return round(size / GiB, 2)


def test_up_to_2_0() -> None:
    found = read(OLDEST)
    assert (found.gpu, found.wanted_bytes) == (0, 86 * MiB)
    assert (gibibytes(found.capacity_bytes), gibibytes(found.allocated_bytes), found.cached_bytes) == (10.92, 10.27, 0)


def test_2_1_with_its_misspelling() -> None:
    found = read(MISSPELT)
    assert (gibibytes(found.capacity_bytes), gibibytes(found.outside_bytes), gibibytes(found.short_bytes)) == (79.11, 1.93, 3.44)
    assert found.others_bytes is not None and found.others_bytes < 0.05 * GiB


def test_in_a_container_the_only_process_is_this_one() -> None:
    found = read(CONTAINER)
    assert (found.gpu, gibibytes(found.outside_bytes)) == (7, 3.25)


def test_another_tenant_is_named_and_blamed() -> None:
    found = read(TWO_TENANTS)
    assert list(found.tenants) == [2493055]
    assert (gibibytes(found.outside_bytes), gibibytes(found.others_bytes)) == (0.21, 12.07)
    assert "another process" in found.advice()[0]


def test_hip() -> None:
    found = read(HIP)
    assert (found.backend, gibibytes(found.wanted_bytes)) == ("HIP", 12.95)


def test_fragmentation_is_advised_when_the_cache_would_have_sufficed() -> None:
    text = MISSPELT.replace("6.37 GiB", "2.00 GiB")
    assert any("expandable_segments" in a for a in read(text).advice())


@pytest.mark.parametrize("message", [OLDEST, MISSPELT, CONTAINER, TWO_TENANTS, HIP])
def test_line_breaks_anywhere_change_nothing(message: str) -> None:
    assert read(message.replace(" ", "\n  ")) == read(message)


@given(st.text(max_size=300))
def test_whatever_a_log_says_before_the_message_changes_nothing(text: str) -> None:
    assert read(f"{text}\n{CONTAINER}") == read(CONTAINER)


def test_from_a_log_through_the_command(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1\n" + OLDEST + "\nstep 2\n" + MISSPELT + "\n")
    assert run(["explain", str(log)]) == 0
    out = capsys.readouterr().out
    assert "one request for 6.37 GiB on GPU 0, 3.44 GiB more than was free" in out
    assert "68.61 GiB" in out
