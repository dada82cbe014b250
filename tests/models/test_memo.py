"""Values of large frozen objects are remembered by identity, a bounded number of them."""

import msgspec
import pytest

from vramcast.models.inventory import by_identity


class Thing(msgspec.Struct, frozen=True):
    facts: dict[str, int]


def test_an_object_is_known_by_identity_and_the_rest_by_value() -> None:
    asked: list[tuple[int, str, int]] = []

    @by_identity()
    def worked_out(thing: Thing, name: str, *, size: int = 0) -> tuple[int, str, int]:
        asked.append((thing.facts["n"], name, size))
        return asked[-1]

    one, same = Thing({"n": 1}), Thing({"n": 1})
    assert worked_out(one, "a", size=2) is worked_out(one, "".join(["a"]), size=2)
    assert len(asked) == 1
    assert worked_out(same, "a", size=2) == worked_out(one, "a", size=2)
    worked_out(one, "a", size=3)
    worked_out(one, "b", size=2)
    assert asked == [(1, "a", 2), (1, "a", 2), (1, "a", 3), (1, "b", 2)]


def test_only_the_last_values_are_kept() -> None:
    asked: list[int] = []

    @by_identity(most=3)
    def worked_out(thing: Thing) -> int:
        asked.append(thing.facts["n"])
        return thing.facts["n"]

    things = [Thing({"n": n}) for n in range(5)]
    for thing in (*things, things[4], things[2], things[0]):
        assert worked_out(thing) == thing.facts["n"]
    assert asked == [0, 1, 2, 3, 4, 0]


def test_errors_are_not_remembered() -> None:
    asked: list[int] = []

    @by_identity(2)
    def worked_out(thing: Thing, other: Thing) -> int:
        asked.append(1)
        return thing.facts["n"] + other.facts["m"]

    broken, other = Thing({"n": 1}), Thing({})
    for _ in range(2):
        with pytest.raises(KeyError):
            worked_out(broken, other)
    assert len(asked) == 2
