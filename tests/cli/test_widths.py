"""What is printed stays within the terminal: answers and help at 60 to 140 columns, in colour and without, in both languages."""

import re

import pytest
from click import Context, Group

from vramcast import Serving, Training, forecast
from vramcast.cli import COMMANDS, root, run
from vramcast.cli.help.grouped import folded
from vramcast.cli.pages.answer import answer_page
from vramcast.cli.pages.page import cells, wrapped
from vramcast.language import speak

WIDTHS = (60, 80, 100, 140)
QUESTIONS = {
    "fits": Serving(model="Qwen/Qwen2.5-7B-Instruct", gpu="RTX 4090", prompt=1024, output=256),
    "partly": Serving(model="meta-llama/Llama-3.3-70B-Instruct", gpu="H100", gpus=4, context=131072, concurrency=5),
    "no": Serving(model="Qwen/Qwen2.5-72B-Instruct", gpu="RTX 4090"),
    "cards": Serving(model="Qwen/Qwen2.5-7B-Instruct"),
    "train": Training(model="meta-llama/Llama-3.1-8B", gpu="H100", method="lora"),
    "train no": Training(model="Qwen/Qwen2.5-7B", gpu="RTX 4090"),
}


@pytest.fixture(scope="module")
def answers() -> dict[str, object]:
    return {name: forecast(question) for name, question in QUESTIONS.items()}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("code", ["en", "zh"])
@pytest.mark.parametrize("colour", [True, False])
def test_no_line_of_an_answer_is_longer_than_the_terminal(
    answers: dict[str, object], width: int, code: str, colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "" if colour else "1")
    speak(code)
    try:
        for name, answer in answers.items():
            page = answer_page(answer, terminal=True)  # type: ignore[arg-type]
            for line in page.lines:
                for piece in wrapped(line, page.width):
                    text = "".join(part for part, _ in piece)
                    assert cells(text) <= width or " " not in text.strip(), (name, text)
    finally:
        speak(None)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_no_line_of_a_help_is_longer_than_the_terminal(name: str, width: int) -> None:
    """A word that cannot be cut, and a quoted command, may stand out."""
    command = root.get_command(Context(root), name) if name else root  # type: ignore[attr-defined]
    groups = [command, *command.commands.values()] if isinstance(command, Group) and name else [command]
    for one in groups:
        settings = {**root.context_settings, **one.context_settings, "terminal_width": width}
        told = one.get_help(Context(one, info_name=name, **settings))
        for line in told.splitlines():
            assert len(line) <= width or '"' in line or len(line.split()) < 3, line
        assert "INTEGER RANGE" not in told and not re.search(r"default: \(|<=x", told)


def test_a_folded_example_can_be_copied() -> None:
    lines = folded("  vramcast serve some/Model --gpu H100x4 --context 128K --concurrency 5    what it asks", 44)
    assert lines == [
        "  vramcast serve some/Model --gpu H100x4 \\",
        "      --context 128K --concurrency 5",
        "        what it asks",
    ]
    quoted = folded('  vramcast "vllm serve Qwen/Qwen3-8B --max-model-len 16384" --gpu L4', 50)
    assert quoted[0].count('"') == 2


def test_a_chance_below_a_border_is_not_written_as_the_border() -> None:
    from vramcast.planning.verdict import likely_text

    assert [likely_text(chance) for chance in (0.9499, 0.95, 0.4999, 0.995, 0.004)] == [
        "94% likely", "95% likely", "49% likely", "over 99% likely", "under 1% likely",
    ]  # fmt: skip


def test_a_plan_of_a_model_is_a_plan_to_serve_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "Qwen/Qwen2.5-0.5B-Instruct", "--gpu", "4090x1", "--engine", "vllm", "--json"]) == 0
    assert "asked as: vramcast plan serve Qwen/Qwen2.5-0.5B-Instruct" in capsys.readouterr().err
    assert run(["plan", "srve", "x"]) == 2
    assert "did you mean serve?" in capsys.readouterr().err
