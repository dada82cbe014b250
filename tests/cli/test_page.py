"""Pages at every width, with and without colours and Unicode: no line too long, no bar broken, no cost cut."""

import io
import re
import sys

import pytest

import vramcast
from vramcast.cli import run
from vramcast.cli.pages.answer import answer_page
from vramcast.cli.pages.html import answer_html
from vramcast.cli.pages.page import Line, Page, wrapped

SERVE = ["serve", "meta-llama/Llama-3.3-70B-Instruct", "--gpu", "H100x4", "--context", "128K", "--concurrency", "5"]
TRAIN = ["train", "meta-llama/Llama-3.1-8B", "--gpu", "4090", "--method", "lora"]
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def drawn(arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int) -> list[str]:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(arguments) == 1
    return COLOUR.sub("", capsys.readouterr().out).splitlines()


@pytest.mark.parametrize("arguments", [SERVE, TRAIN], ids=["serve", "train"])
@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("colours", [True, False])
def test_no_line_is_longer_than_the_terminal(
    arguments: list[str], width: int, colours: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not colours:
        monkeypatch.setenv("NO_COLOR", "1")
    lines = drawn(arguments, capsys, monkeypatch, width)
    assert max(len(line) for line in lines) <= min(width, 130)
    text = " ".join(" ".join(line.split()) for line in lines)
    assert "small loss of quality on long contexts" in text or "about a third more time per step" in text
    bars = [line for line in lines if re.match(r"^  [█▓▒░▚▞▤▥▦▧▨·\u00d7│]{10,}", line)]
    assert len(bars) == 1, "the card's bar is one line"
    assert "│" in bars[0], "it shows where the card ends"
    if not colours:
        assert len(set(bars[0].split()[0])) > 4, "each part has its own pattern"


def test_every_moment_has_its_bar_on_its_own_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = drawn(TRAIN, capsys, monkeypatch, 80)
    start = lines.index("The step, moment by moment") + 1
    assert all(re.search(r"GiB  ▇+(  ← peak)?$", line) for line in lines[start : start + 6])


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
@pytest.mark.parametrize("terminal", [True, False])
def test_outputs_that_hold_less_than_unicode(encoding: str, terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "80")
    assert run(TRAIN) == 1
    sys.stdout.flush()
    text = COLOUR.sub("", raw.getvalue().decode(encoding))
    assert ("← peak" if encoding == "utf-8" else "<- peak") in text
    assert "?" not in text
    if terminal and encoding == "ascii":
        assert re.search(r"^  W+A+\|A+L*F*X* 3\d", text, re.M), "letters stand for the parts"


def test_long_lines_go_on_under_their_text() -> None:
    line = Line((("  ", ""), ("name = value", ""), ("  because of many words that follow here", "faint")), 4)
    pieces = ["".join(text for text, _ in piece) for piece in wrapped(line, 30)]
    assert pieces == ["  name = value  because of", "    many words that follow", "    here"]
    assert wrapped(Line((("x" * 50, ""),), 2), 30) == [(("x" * 50, ""),)], "a word is never cut"


def test_the_end_of_a_whole_is_marked_in_its_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "46")
    page = Page(terminal=True)
    page.bar([("weights", 60), ("missing", 40)], total=100, label="x", end=50)
    assert "".join(text for text, _ in page.lines[0]).index("│") == 2 + round(0.5 * 41)


def test_the_bare_command_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "Commands:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "ours"),
    [("--batch-size", "--micro-batch"), ("--lora-r", "--rank"), ("--seq-len", "--seq"), ("--gpus", "--gpu NAMExN")],
)
def test_flags_of_other_programs_are_translated(typed: str, ours: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "meta-llama/Llama-3.1-8B", typed, "4"]) == 2
    assert f"no such option {typed}: here it is {ours}" in capsys.readouterr().err


def test_misspelt_flags_of_engines_and_ours_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    for typed, meant in (("--max-model-length", "--max-model-len"), ("--gpus", "--gpu")):
        assert run(["serve", "meta-llama/Llama-3.1-8B", typed, "4"]) == 2
        assert f"did you mean {meant}" in capsys.readouterr().err


def test_words_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "Qwen/Qwen2.5-0.5B-Instruct", "--gpu", "4090", "--explain", "claimed"]) == 0
    assert "What an engine takes of the card" in capsys.readouterr().out


def test_an_answer_in_python_is_the_page_a_card_and_the_contract() -> None:
    answer = vramcast.train("meta-llama/Llama-3.1-8B", gpu="4090", method="lora")
    assert str(answer) == answer_page(answer, terminal=False).text()
    assert repr(answer).startswith("<Forecast meta-llama/Llama-3.1-8B on GeForce RTX 4090: no, needs 3")
    assert answer.to_dict()["fit"]["verdict"] == "no"
    html = answer._repr_html_()
    assert html == answer_html(answer)
    assert "DOES NOT START" not in html and ">DOES NOT FIT<" in html and "% likely" in html


def test_html_escapes_what_others_wrote() -> None:
    import msgspec

    answer = vramcast.serve("Qwen/Qwen2.5-0.5B-Instruct", gpu="4090")
    evil = msgspec.structs.replace(answer, model=msgspec.structs.replace(answer.model, id="<script>x</script>"))
    assert "<script>" not in evil._repr_html_()


def test_what_decides_comes_first_with_its_flag(capsys: pytest.CaptureFixture[str]) -> None:
    run(TRAIN)
    text = capsys.readouterr().out
    listed = text[text.index("Assumed") :].splitlines()[1:]
    assert [line.split()[0] for line in listed[:6]] == ["rank", "targets", "checkpointing", "optimizer", "attention", "loss"]
    assert listed[2].endswith("(--checkpointing)")


def test_nothing_that_a_terminal_obeys_reaches_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page(terminal=False)
    page.line(("title\x1b]0;x\x07", "title"), "\x1b[31mred\u202e")
    page.show()
    assert capsys.readouterr().out == "title\\x1b]0;x\\x07\\x1b[31mred\\u202e\n"


def test_every_word_of_training_is_listed_by_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--options"]) == 0
    text = capsys.readouterr().out
    for word in ("grpo_colocated", "paged_adamw_8bit", "llama_factory", "llama_pro", "micro_batch", "live_gathers", "nf4"):
        assert word in text, word
    assert run(["train", "colocate", "--options"]) == 0
    assert len(capsys.readouterr().out.splitlines()) < 12
    assert run(["train", "nonsense", "--options"]) == 2
    assert "no word of training contains 'nonsense'" in capsys.readouterr().err
