"""A config that names no type is not float32 in silence: the answer lists what was taken, and the bar reaches half of it."""

import json
from pathlib import Path

import pytest

from vramcast.models import reading
from vramcast.models.reading import read_model
from vramcast.models.sources.described import UNTYPED
from vramcast.planning.serving import forecast_serving
from vramcast.workload import Serving

CONFIG = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8,
          "intermediate_size": 1408, "vocab_size": 32_000, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096}  # fmt: skip


def _written(folder: Path, **more: object) -> str:
    (folder / "config.json").write_text(json.dumps(CONFIG | more))
    return str(folder)


def test_what_was_taken_is_listed_and_named(tmp_path: Path) -> None:
    model = read_model(_written(tmp_path))
    assert [(a.name, a.value) for a in model.assumed] == [("dtype", "float32")]
    assert model.unmodelled == (UNTYPED,)


@pytest.mark.parametrize("said", [{"torch_dtype": "float32"}, {"dtype": "bfloat16"}])
def test_a_type_that_is_named_is_taken_as_it_is(tmp_path: Path, said: dict[str, str]) -> None:
    model = read_model(_written(tmp_path, **said))
    assert not model.assumed
    assert not model.unmodelled


def test_the_bar_reaches_the_16_bit_weights(tmp_path: Path) -> None:
    silent = forecast_serving(Serving(model=_written(tmp_path), engine="transformers", context=512)).worst
    weights = next(term.bytes for term in silent.terms if term.name == "weights")
    assert silent.interval is not None
    assert silent.interval.low <= silent.needed_bytes - weights / 2


def test_every_catalogued_float32_is_stated_settled_or_named() -> None:
    """No id is float32 because its copied config said nothing: two that nobody could settle say so."""
    models = [reading.load(name) for name in reading.known_ids()]
    unsettled = {m.id for m in models if m and UNTYPED in m.unmodelled}
    assert unsettled == {"RWKV/rwkv-5-world-3b", "bigcode/gpt_bigcode-santacoder"}
    assert all("dtype" in {a.name for a in m.assumed} for m in models if m and m.id in unsettled)


@pytest.mark.parametrize(("name", "dtype"), [("google/gemma-3-12b-it", "bfloat16"), ("huggyllama/llama-65b", "float16"),
    ("MiniMaxAI/MiniMax-M2", "bfloat16"), ("google-bert/bert-base-uncased", "float32")])  # fmt: skip
def test_settled_types(name: str, dtype: str) -> None:
    model = reading.load(name)
    assert model is not None
    assert model.dtype == dtype
