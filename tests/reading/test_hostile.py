"""Foreign text that is one mark repeated is looked through in time that grows with its length, not with its square."""

import time

import pytest

from vramcast.reading.kinds import kinds_of

LONG, SECONDS = 40_000, 10.0  # a square of the length took minutes


@pytest.mark.parametrize("mark", ["\n", " \n", " "])
@pytest.mark.parametrize("ending", [".sh", ".yaml", ".bat", ".properties", ".pbtxt", ".env", ".tf", ".ps1", ".md"])
def test_one_mark_repeated(ending: str, mark: str) -> None:
    begun = time.process_time()
    assert kinds_of((mark * (LONG // len(mark))).encode(), f"x{ending}") == ()
    assert time.process_time() - begun < SECONDS


def test_properties_of_other_programs_are_no_server() -> None:
    assert kinds_of(b"log4j.rootLogger=INFO, stdout\noption.name=x\n", "log4j.properties") == ()
