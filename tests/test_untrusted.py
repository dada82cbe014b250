"""The gate for what strangers wrote: bounded, in one dialect, harmless to print."""

import time

import pytest

from vramcast.errors import ConfigError, QuestionError
from vramcast.untrusted import (
    existing_path,
    memory_bound,
    parse_json,
    parse_toml,
    parse_yaml,
    printable,
    real_number,
    shown,
    whole_number,
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"a": 1, "a": 2}', "gives 'a' twice"),
        (b"[" * 200 + b"]" * 200, "nested deeper than 100"),
        (b"[" * 100_000, "nested too deeply|not JSON"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "5,000 digits"),
        (b"\xff\xfe\xff", "not text|not JSON"),
        (b"<html>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1", "Git LFS pointer"),
    ],
)
def test_json_that_cannot_be_read_says_why(text: bytes, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_json(text, "the file")


@pytest.mark.parametrize("text", [b'{"a": Infinity}', b'\xef\xbb\xbf{"a": 1}', '{"a": 1}'.encode("utf-16")])
def test_one_dialect_of_json_everywhere(text: bytes) -> None:
    assert parse_json(text, "the file")["a"] > 0


def test_a_name_twice_among_many_is_found_quickly() -> None:
    text = "{" + ",".join(f'"n{i}": 1' for i in range(200_000)) + ',"n7": 1}'
    started = time.process_time()
    with pytest.raises(ConfigError, match="gives 'n7' twice"):
        parse_json(text, "the file")
    assert time.process_time() - started < 2


LISTS = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(f"a{i}: &a{i} [{','.join(['*a' + str(i - 1)] * 9)}]\n" for i in range(1, 12))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i}\n  <<: [{','.join(['*a' + str(i - 1)] * 9)}]\n" for i in range(1, 12))


@pytest.mark.parametrize("text", [LISTS, MERGES])
def test_aliases_count_as_often_as_they_are_written_out(text: str) -> None:
    with pytest.raises(QuestionError, match=r"writes out [\d,]+ items"):
        parse_yaml(text, "the file")


@pytest.mark.parametrize(
    "text", ["a: 2001-99-99", "a: 0b_", "a: !!int +", "a: " + "9" * 5_000, "a: [", "!!python/object:os.x {}"]
)
def test_yaml_that_no_reader_can_hold_is_a_question_error(text: str) -> None:
    with pytest.raises(QuestionError, match="is not YAML"):
        parse_yaml(text, "the file")


def test_toml_with_a_huge_number_is_a_question_error() -> None:
    with pytest.raises(QuestionError, match="is not TOML"):
        parse_toml("a = " + "9" * 5_000, "the file")


@pytest.mark.parametrize(
    ("text", "number"),
    [("1,024", 1024), ("7", 7), ("²", None), ("٣", None), ("--5", None), ("", None), (",,,", None), ("9" * 50, None)],
)
def test_whole_numbers_are_ascii_digits(text: str, number: int | None) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [("1.5", 1.5), (".5", 0.5), ("...", None), ("1.2.3", None), ("9" * 400, None), ("nan", None)],
)
def test_numbers_have_one_point_at_most(text: str, number: float | None) -> None:
    assert real_number(text) == number


def test_nothing_that_a_terminal_obeys_is_printed() -> None:
    assert printable("a\x1b]0;x\x07b\u202ec\ud800") == "a\\x1b]0;x\\x07b\\u202ec\\ud800"
    assert printable("显存 ok\n\t") == "显存 ok\n\t"
    assert shown("x" * 100, 10).endswith("(102 letters)")


@pytest.mark.parametrize("name", ["x" * 5_000, "a\0b", "~no-such-user/x", "no such file"])
def test_names_that_cannot_be_files_are_none(name: str) -> None:
    assert existing_path(name) is None


def test_memory_is_bounded_and_given_back() -> None:
    with pytest.raises(MemoryError), memory_bound(64 * 2**20):
        bytearray(2**30)
    assert len(bytearray(2**28)) == 2**28


def test_the_gate_is_the_only_parser_of_foreign_text() -> None:
    """Own data files may be decoded elsewhere; text of others goes through the gate."""
    from pathlib import Path

    import vramcast

    root = Path(vramcast.__file__).parent
    found = [
        f"{path.relative_to(root)}:{number}"
        for path in root.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if any(word in line for word in ("json.loads(", "yaml.safe_load(", "yaml.load(", "tomllib.loads("))
        and path.name not in ("untrusted.py", "build.py", "accelerator.py")
        and "result" not in line  # what our own worker processes wrote
    ]
    assert found == [], f"use vramcast.untrusted: {found}"
