"""A class with no family here, built on the meta device: exact tensors, what is not known said so, and refusals."""

import pytest

from vramcast.errors import ConfigError, UnmodelledError
from vramcast.models.sources.transformers_meta import read_meta

REFUSED = UnmodelledError("no family")
GPT = {
    "model_type": "biogpt", "architectures": ["BioGptForCausalLM"], "hidden_size": 64, "num_hidden_layers": 3,
    "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 101, "max_position_embeddings": 32,
}  # fmt: skip


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_its_tensors_are_those_of_the_class() -> None:
    transformers = pytest.importorskip("transformers")
    model = read_meta(GPT, path="config.json", refused=REFUSED)
    built = transformers.BioGptForCausalLM(transformers.BioGptConfig(**GPT))
    assert model.parameters == sum(p.numel() for p in built.parameters())
    assert model.layers == 3 and model.blocks[0].mixers[0].heads == 4
    assert model.tied and "biogpt" in model.unmodelled[0]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_a_known_class_gives_what_its_family_gives() -> None:
    pytest.importorskip("transformers")
    from vramcast.models.families import read_config

    raw = {
        "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100,
    }  # fmt: skip
    ours, built = read_config(raw), read_meta(raw, path="config.json", refused=REFUSED)
    assert built.parameters == ours.parameters
    assert built.blocks[0].mixers[0].cache_elements == ours.blocks[0].mixers[0].cache_elements


@pytest.mark.torch
@pytest.mark.parametrize("change", [{"model_type": "nothing-like-it"}, {"num_hidden_layers": 10**9}])
def test_what_transformers_has_no_class_for_stays_refused(change: dict) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(UnmodelledError, match="no family"):
        read_meta({**GPT, **change}, path="config.json", refused=REFUSED)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_a_config_the_class_refuses_is_the_users_to_mend() -> None:
    pytest.importorskip("transformers")
    with pytest.raises(ConfigError, match=r"config\.json: transformers .* cannot build this"):
        read_meta({**GPT, "hidden_size": "wide"}, path="config.json", refused=REFUSED)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "name"), [("neomme", None), ("kyutai_speech_to_text", ["KyutaiSpeechToTextForConditionalGeneration"])]
)
def test_fields_that_differ_by_layer_and_odd_embeddings_are_no_obstacle(kind: str, name: list[str] | None) -> None:
    transformers = pytest.importorskip("transformers")
    if kind not in transformers.CONFIG_MAPPING:
        pytest.skip("a newer class than this transformers has")
    raw = transformers.CONFIG_MAPPING[kind]().to_dict()
    assert read_meta({**raw, "architectures": name}, path="config.json", refused=REFUSED).parameters > 0


def test_without_the_extra_the_refusal_stands(monkeypatch) -> None:
    monkeypatch.setattr("vramcast.models.sources.transformers_meta.find_spec", lambda name: None)
    with pytest.raises(UnmodelledError, match="no family"):
        read_meta(GPT, path="config.json", refused=REFUSED)
