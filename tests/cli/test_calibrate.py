"""``vramcast calibrate``: factors are found again, a profile changes later answers and is named in them, bad runs are refused."""

import json

import pytest
from click.testing import CliRunner

from vramcast.asking.serving import serving_question
from vramcast.cli import root
from vramcast.errors import MissingError, QuestionError
from vramcast.serving.engines.base import answer_of
from vramcast.speed import scales
from vramcast.speed.answer import load_of, serving_speed
from vramcast.speed.scales import Scales

WORDS = {"model": "Qwen/Qwen3-8B", "gpu": "RTX 4090", "context": 8192, "prompt": 1024, "output": 128}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(scales, "folder", lambda: tmp_path / "profiles")


def _speed(words, factors=None):
    model = words["model"]
    rest = {k: v for k, v in words.items() if k != "model"}
    return serving_speed(answer_of(serving_question(model, **rest).question), scales=factors)


def _runs(tmp_path, factors: Scales):
    file = tmp_path / "runs.jsonl"
    rows = []
    for users in (1, 4, 16, 64):
        speed = _speed({**WORDS, "concurrency": users}, factors)
        rows.append({**WORDS, "concurrency": users, "ttft_s": speed.ttft.seconds, "tpot_s": speed.tpot.seconds})
    file.write_text("\n".join(json.dumps(row) for row in rows))
    return file


def test_the_machines_factors_are_found_again(tmp_path) -> None:
    file = _runs(tmp_path, Scales(host=1.0, bandwidth=1.15, compute=1.3))
    found = json.loads(
        CliRunner().invoke(root, ["calibrate", str(file), "--name", "lab", "--json"], standalone_mode=False).output
    )
    profile = found["profile"]
    assert profile["scales"]["bandwidth"] == pytest.approx(1.15, rel=0.06)  # eight figures still feel the prior
    assert profile["scales"]["compute"] == pytest.approx(1.3, rel=0.12)
    assert profile["error_after"] < 0.04 < profile["error_before"]


def test_later_answers_use_the_profile_and_name_it(tmp_path) -> None:
    CliRunner().invoke(root, ["calibrate", str(_runs(tmp_path, Scales(bandwidth=1.2))), "--name", "slow"], standalone_mode=False)
    slow = _speed({**WORDS, "concurrency": 1, "profile": "slow"})
    assert slow.tpot.seconds > 1.1 * _speed({**WORDS, "concurrency": 1}).tpot.seconds
    question = serving_question(WORDS["model"], gpu="RTX 4090", prompt=10, profile="slow").question
    assert any(a.name == "profile" and "measured on GeForce RTX 4090" in a.because for a in load_of(question, 1)[1])


def test_one_run_moves_the_factors_less_than_many(tmp_path) -> None:
    def predict(factors: Scales):
        return [1e-2 * factors.bandwidth] * count

    found = []
    for count in (1, 30):
        found.append(scales.fit(predict, [1.2e-2] * count).bandwidth)
    assert 1 < found[0] < found[1] < 1.2 + 1e-6


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ('{"model": "Qwen/Qwen3-8B", "tpot_s": 0.01}', QuestionError, "run 1 names no gpu"),
        ('{"gpu": "4090", "tpot_s": 0.01}', QuestionError, "run 1 names no model"),
        ('{"model": "Qwen/Qwen3-8B", "gpu": "4090", "tpot_s": "fast"}', QuestionError, "tpot_s is 'fast'"),
        ('{"model": "Qwen/Qwen3-8B", "gpu": "4090", "prompt": 10}', QuestionError, "no run holds a measured figure"),
        ("{nope\n{}", QuestionError, "line 1: not JSON"),
    ],
)
def test_runs_that_say_too_little_are_refused(tmp_path, text: str, error: type[Exception], said: str) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(text)
    with pytest.raises(error, match=said):
        CliRunner().invoke(root, ["calibrate", str(file)], standalone_mode=False, catch_exceptions=False)


def test_a_profile_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(MissingError, match="no profile 'nowhere'"):
        _speed({**WORDS, "profile": "nowhere"})
