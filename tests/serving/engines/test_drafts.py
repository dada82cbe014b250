"""Draft models beside a target: an EAGLE head that nothing knows has the target's shape, any other draft is asked for."""

from pathlib import Path

import pytest

from vramcast import Serving, forecast, read_model
from vramcast.errors import MissingError, VramcastError
from vramcast.ledger import Forecast
from vramcast.models.inventory import Model
from vramcast.serving.engines.drafts import draft_of, way_of_draft
from vramcast.serving.engines.sglang.drafts import drafts_itself
from vramcast.serving.engines.vllm.settings import draft_beside

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.parametrize(
    ("name", "method", "parameters"),
    [
        ("someone/EAGLE3-Llama", None, 424_689_664),  # yuhuili/EAGLE3-LLaMA3.1-Instruct-8B has as many, less its d2t table
        ("someone/a-head", "EAGLE3", 424_689_664),
        ("/models/llama-eagle", None, 777_003_008),
    ],
)
def test_an_unknown_head_has_the_targets_shape(name: str, method: str | None, parameters: int) -> None:
    found = draft_of(name, method, read_model(LLAMA), option="speculative_model")
    assert found is not None
    assert found.model.parameters == parameters
    assert "is not at hand: a head of meta-llama/Llama-3.1-8B-Instruct's shape" in found.assumed[0].because


def test_routed_experts_make_a_head_as_wide_as_a_token_passes() -> None:
    found = draft_of("someone/x-eagle3", None, read_model("openai/gpt-oss-20b"), option="speculative_model")
    assert found is not None
    assert [block.feedforward.intermediate for block in found.model.blocks if block.feedforward] == [4 * 2880]


@pytest.mark.parametrize(
    ("name", "method"), [("someone/Beagle-7B", None), ("someone/EAGLE3-Llama", "draft_model"), ("someone/dflash", "dflash")]
)
def test_no_other_draft_is_made_up(name: str, method: str | None) -> None:
    with pytest.raises(VramcastError, match="someone"):
        draft_of(name, method, read_model(LLAMA), option="speculative_model")


def _sglang(version: str, **options: object) -> Forecast:
    return forecast(Serving(model=LLAMA, engine="sglang", engine_version=version, gpu="H100 SXM5 80GB", options=options))


def _term(answer: Forecast, name: str) -> int:
    return round(next(t.bytes for t in answer.ranks[0].instants[0].terms if t.name == name))


@pytest.mark.parametrize(("version", "token_bytes"), [("0.5.23", 135_168), ("0.5.6", 131_072)])
def test_sglang_loads_the_named_draft(version: str, token_bytes: int) -> None:
    head = {"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "someone/x", "num_speculative_tokens": 3}
    plain, drafted = _sglang(version, num_speculative_tokens=3), _sglang(version, **head)
    assert 0.79 * 2**30 < _term(drafted, "weights") - _term(plain, "weights") < 0.90 * 2**30
    assert f"tokens x {token_bytes:,} B" in drafted.ranks[0].instants[0].terms[1].why
    assert any("EAGLE 3 head" in str(a.value) for a in drafted.assumed)


@pytest.mark.parametrize(("algorithm", "told"), [("EAGLE", True), ("DFLASH", True), ("NGRAM", False)])
def test_a_draft_that_is_nowhere_is_told(algorithm: str, told: bool) -> None:
    found = _sglang("0.5.23", speculative_algorithm=algorithm)
    assert any(u.what.startswith(f"the draft of --speculative-algorithm {algorithm}") for u in found.unmodelled) is told


DEEPSEEK = "deepseek-ai/DeepSeek-V3"


@pytest.mark.parametrize(
    ("algorithm", "path", "own"),
    [
        ("EAGLE", None, True),
        ("EAGLE", DEEPSEEK, True),  # the target named as its own draft
        ("EAGLE", "/models/DeepSeek-V3", True),
        ("NEXTN", "lmsys/DeepSeek-V3-0324-NextN", True),  # its draft layers alone
        ("EAGLE", "someone/DeepSeek-V3-eagle", False),
        ("STANDALONE", DEEPSEEK, False),
        ("", None, False),
    ],
)
def test_sglang_drafts_by_the_checkpoints_own_layers(algorithm: str, path: str | None, own: bool) -> None:
    options = {"speculative_algorithm": algorithm, "speculative_draft_model_path": path}
    assert drafts_itself(read_model(DEEPSEEK), options) is own


def test_a_draft_that_nothing_knows_is_told_and_the_rest_answered() -> None:
    found = _sglang("0.5.23", speculative_algorithm="STANDALONE", speculative_draft_model_path="someone/x")
    assert any(u.what.startswith("the draft model someone/x: its weights and cache are not counted") for u in found.unmodelled)


@pytest.mark.parametrize("path", [DEEPSEEK, "/models/DeepSeek-V3/"])
def test_vllm_drafts_by_the_targets_own_layers_where_it_is_named_again(path: str) -> None:
    options = {"speculative_method": "deepseek_mtp", "speculative_model": path}
    assert draft_beside(read_model(DEEPSEEK), options) is None


def test_an_unknown_draft_is_looked_for_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def nothing(name: str) -> Model:
        asked.append(name)
        raise MissingError(f"{name} is nowhere")

    monkeypatch.setattr("vramcast.models.reading.read_model", nothing)
    target, name = read_model(LLAMA), str(tmp_path / "eagle3")
    for _ in range(3):
        assert draft_of(name, None, target, option="speculative_model")
    assert asked == [name]
    (tmp_path / "eagle3").mkdir()
    draft_of(name, None, target, option="speculative_model")
    assert asked == [name, name]


def test_a_third_head_is_called_so_whatever_its_vocabulary() -> None:
    target = read_model("mistralai/Mixtral-8x7B-Instruct-v0.1")  # 32,000 tokens, as many as a head of its own has
    found = draft_of("someone/x", "eagle3", target, option="speculative_model")
    assert found is not None
    assert str(found.assumed[0].value).startswith("EAGLE 3 head")


def test_vllm_answers_beside_a_draft_that_nothing_knows_and_tells_it() -> None:
    options = {"speculative_model": "someone/a-drafter", "num_speculative_tokens": 4}
    found = forecast(Serving(model=LLAMA, engine="vllm", gpu="H100 SXM5 80GB", options=options))
    assert [u.what for u in found.unmodelled if u.what.startswith("the draft model someone/a-drafter")]
    assert found.ranks[0].needed_bytes > 0


@pytest.mark.parametrize(
    ("name", "way"),
    [("[ngram]", "ngram"), ("Qwen/Qwen3-0.6B", "draft_model"), ("someone/EAGLE3-Llama", ""), (DEEPSEEK, ""), (None, "")],
)
def test_a_draft_named_without_a_method_has_that_of_its_name(name: str | None, way: str) -> None:
    assert way_of_draft(name, read_model(DEEPSEEK)) == way
