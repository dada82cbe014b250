"""Names as reports write them: the parameters they lead to, and that no name leads to a model of another size."""

import re
from pathlib import Path

import pytest

from vramcast import read_model
from vramcast.errors import VramcastError
from vramcast.models import reading
from vramcast.models.names import take_apart

TABLE = Path(__file__).with_name("known_parameters.tsv")
SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)([mbt])(?![a-z0-9])")

# Names that say less than they hold (vision and speech towers, a talker) or more (a mislabelled upload).
BEYOND_THE_NAME = {
    "ministral3-3b", "ministral3-3b-reasoning", "qwen2.5-omni-7b", "glm4v-9b", "cobolpro-llama-65b-fined-tuned-llm",
    "llava-onevision-qwen2-0.5b-ov", "voxtral-mini-3b",
}  # fmt: skip


def test_every_known_name_leads_to_its_parameters() -> None:
    wrong = []
    for line in TABLE.read_text().splitlines()[1:]:
        name, parameters, method = line.split("\t")
        model = read_model(name, offline=True)
        said = model.quantization or {}
        if (model.parameters, said.get("quant_method", "mlx" if said else "-")) != (int(parameters), method):
            wrong.append((name, model.parameters, said))
    assert wrong == []


def test_sizes_in_names_agree_with_parameters() -> None:
    index, off = reading.read_index(), []
    for key, place in {**{k: a.row for k, a in index.aliases.items()}, **index.models}.items():
        spelled = take_apart(key).key
        sizes = SIZE.findall(spelled)
        if len(sizes) == 1 and spelled not in BEYOND_THE_NAME:
            said = float(sizes[0][0]) * {"m": 1e6, "b": 1e9, "t": 1e12}[sizes[0][1]]
            held = reading.model_of(reading.row_at(place)).parameters
            rounding = 1.7 if said < 3e9 else 1.28
            if not 0.8 * said - 0.5e6 < held < rounding * said + 0.5e6:
                off.append((key, held))
    assert off == []


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("llama3_1-70b", "meta-llama/Llama-3.1-70B"),
        ("Hermes-2-Pro-Llama-3-8B", "meta-llama/Meta-Llama-3-8B"),
        ("L3.1-70B-Euryale-v2.2", "meta-llama/Llama-3.1-70B"),
        ("bartowski/Qwen_Qwen3-30B-A3B-GGUF", "Qwen/Qwen3-30B-A3B"),
        ("qwen2.5:14b-instruct-q4_K_M", "Qwen/Qwen2.5-14B"),
        ("llama2-7b (ibm-fms)", "meta-llama/Llama-2-7b-hf"),
    ],
)
def test_a_longer_name_holds_its_base(name: str, base: str) -> None:
    model, held = read_model(name, offline=True), read_model(base, offline=True)
    assert (model.parameters, model.hidden, model.layers) == (held.parameters, held.hidden, held.layers)
    assert "model" in {a.name for a in model.assumed}


@pytest.mark.parametrize(
    "name",
    [
        "someone/GLM-4.5-Air-REAP-71B-A12B",  # pruned, by how much is not known here
        "nvidia/Llama-3.1-Nemotron-51B-Instruct",  # no Llama of that size
        "tiiuae/falcon-h9-7b",  # another release
        "someone/idefics9-8b-llama3",  # the size is not that of the family after it
        "someone/blip9-opt-2.7b",  # a tower beside the base
        "someone/Qwen2.5-7B-0.5B-draft",  # two sizes
        "yuhuili/EAGLE-LLaMA3-Instruct-8B",  # a drafter
        "RedHatAI/Qwen3-8B-speculator.eagle3",
        "google/gemma-4-31B-it-assistant",  # Google's drafters end so
        "dolphin-2.9.1-mixtral-1x22b",
    ],
)
def test_a_name_of_other_shapes_is_refused(name: str) -> None:
    with pytest.raises(VramcastError):
        read_model(name, offline=True)


def test_a_stated_context_is_believed() -> None:
    model = read_model("gradientai/Llama-3-8B-Instruct-262k", offline=True)
    assert model.positions == 262 * 1024
    assert [a.because for a in model.assumed if a.name == "positions"] == ["the name says so"]


def test_a_slip_of_the_pen_is_asked_about_and_not_taken_for_a_fine_tune() -> None:
    with pytest.raises(VramcastError, match=r"did you mean qwen/qwen2.5-7b-instruct\?"):
        read_model("Qwen/Qwen2.5-7B-Instrct", offline=True)
    tuned, base = read_model("someone/Qwen2.5-7B-Instruct-Tuned", offline=True), read_model("Qwen/Qwen2.5-7B", offline=True)
    assert tuned.parameters == base.parameters


def test_part_of_a_name_offers_the_names_that_hold_it() -> None:
    with pytest.raises(VramcastError, match=r"did you mean .*Qwen/Qwen3-Next-80B-A3B-Instruct"):
        read_model("qwen3-next 99b", offline=True)
