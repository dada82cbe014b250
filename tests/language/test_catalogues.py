"""The catalogues: no message is missing, none is left over, and Fluent's own library reads them as this program does."""

import re
from pathlib import Path

import pytest

from vramcast.asking.wording import headline_in
from vramcast.cli import COMMANDS, run
from vramcast.language import FOLDER, LANGUAGES, Language, catalogue, language, of_terminal, preferred
from vramcast.ledger import Fit
from vramcast.planning.verdict import headline

SOURCE = Path(__file__).parents[2] / "src" / "vramcast"
# Keys that are put together while the program runs: the start of the key, then a name of the answer.
BUILT = (
    "term-", "verdict-", "bound-", "instant-", "trace-", "nav-", "card-", "page-", "lede-", "plan-", "roofline-", "map-",
    "curve-", "front-", "t-", "error-", "help-", "cost-",
)  # fmt: skip


def _values(text: str) -> set[str]:
    return set(re.findall(r"\$(\w+)", text))


def test_no_language_lacks_a_message() -> None:
    assert {code: set(catalogue(code)) for code in LANGUAGES} == {code: set(catalogue("en")) for code in LANGUAGES}


def test_messages_take_the_same_values_in_every_language() -> None:
    for key, text in catalogue("en").items():
        assert all(_values(catalogue(code)[key]) == _values(text) for code in LANGUAGES), key


def test_every_line_is_a_message() -> None:
    for code in LANGUAGES:
        lines = (FOLDER / f"{code}.ftl").read_text("utf-8").splitlines()
        assert len(catalogue(code)) == len([line for line in lines if line and not line.startswith("#")])


@pytest.mark.parametrize("code", LANGUAGES)
def test_the_library_of_fluent_reads_the_same(code: str) -> None:
    runtime = pytest.importorskip("fluent.runtime")
    bundle = runtime.FluentBundle([code], use_isolating=False)
    bundle.add_resource(runtime.FluentResource((FOLDER / f"{code}.ftl").read_text("utf-8")))
    say = Language(code)
    for key, text in catalogue(code).items():
        values = {name: f"<{name}>" for name in _values(text)}
        theirs, errors = bundle.format_pattern(bundle.get_message(key).value, values)
        assert (theirs, errors) == (say(key, **values), []), key


def test_no_message_is_left_over() -> None:
    files = [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.html"), *SOURCE.rglob("*.js")]
    text = "\n".join(file.read_text("utf-8") for file in files)
    spoken = set(re.findall(r"""['"]([a-z][a-z0-9-]+)['"]""", text))
    fields = {name.replace("_", "-") for name in re.findall(r"""['"]([a-z][a-z0-9_]+)['"]""", text)}
    left = {key for key in catalogue("en") if key not in spoken | fields and not key.startswith(BUILT)}
    assert left == set()


def test_costs_of_advice_are_those_of_the_planner() -> None:
    planner = "\n".join(file.read_text("utf-8") for file in (SOURCE / "planning").glob("*.py"))
    for key, text in catalogue("en").items():
        assert not key.startswith("cost-") or (text in planner and language("zh").phrase("cost", text) != text), key


def test_every_command_has_its_line() -> None:
    assert {f"help-{name}": about for name, (_, about) in COMMANDS.items()} == {
        key: text
        for key, text in catalogue("en").items()
        if key.startswith("help-") and key not in ("help-root", "help-commands")
    }


@pytest.mark.parametrize("verdict", ["fits", "tight", "partly", "no"])
@pytest.mark.parametrize("chance", [None, 0.001, 0.5, 0.78, 0.999])
@pytest.mark.parametrize("margin", [-(2**31), 3 * 2**30])
def test_the_headline_in_english_is_the_planners(verdict: str, chance: float | None, margin: int) -> None:
    fit = Fit(verdict=verdict, probability=chance, margin_bytes=margin, capacity_bytes=2**34, error="starts; 1.0 of 2 at once")
    assert headline_in(fit, language("en")) == headline(fit)
    assert verdict == "partly" or headline_in(fit, language("zh")) != headline(fit)


def test_a_terminal_speaks_chinese(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    line = ["serve", "Qwen/Qwen2.5-14B-Instruct", "--gpu", "4090", "--context", "8192", "--prompt", "500"]
    assert run([*line, "--lang", "zh"]) == 1
    told = capsys.readouterr().out
    for word in ("放不下", "显存", "权重 weights", "KV 缓存", "首 token 延迟", "可以怎么改", "14.8 B"):
        assert word in told, word
    monkeypatch.setenv("VRAMCAST_LANG", "zh")
    assert run(["--lang=en", *line]) == 1
    assert "DOES NOT FIT" in capsys.readouterr().out
    assert run(["serve", "Qwen/Qwen2.5-14B-Instruct", "--gpu", "RTX 4099"]) == 2
    assert capsys.readouterr().err.startswith("vramcast: 问题有误")
    assert run(["serve", "x", "--lang", "klingon"]) == 2
    assert "en, zh" in capsys.readouterr().err


def test_json_stays_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["serve", "Qwen/Qwen2.5-14B-Instruct", "--gpu", "4090", "--json"]
    run([*line, "--lang", "en"])
    english = capsys.readouterr().out
    run([*line, "--lang", "zh"])
    assert capsys.readouterr().out == english


def test_a_chinese_message_is_chinese() -> None:
    """Words of the trade, names and numbers may stand as they are; sentences may not."""
    same = {
        key for key, text in catalogue("zh").items() if text == catalogue("en")[key] and re.search(r"[a-z]{3,} [a-z]{3,}", text)
    }
    assert same == set()


def test_the_language_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VRAMCAST_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    assert of_terminal() == "en"
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert of_terminal() == "zh"
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert of_terminal() == "en"
    monkeypatch.setenv("VRAMCAST_LANG", "zh")
    assert of_terminal() == "zh"


def test_the_language_of_a_visit() -> None:
    assert preferred("zh", "en") == "zh"
    assert preferred(None, "fr,zh-CN;q=0.9,en;q=0.8") == "zh"
    assert preferred("xx", None) == "en"
    assert language("xx").code == "en"
