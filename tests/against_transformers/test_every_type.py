"""Every ``model_type`` of transformers: the class's own default config is read as transformers builds it, or refused by name."""

import dataclasses
import importlib.util
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from vramcast.errors import ConfigError, UnmodelledError
from vramcast.models.families import derived, model_types, read_config

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

_SPEC = importlib.util.spec_from_file_location("sweep_types", Path(__file__).parents[2] / "tools" / "sweep_types.py")
assert _SPEC and _SPEC.loader
sweep = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(sweep)
OTHER, SAID, class_of = sweep.OTHER, sweep.SAID, sweep.class_of

# Types that transformers cannot build from their own defaults, or only with libraries that are not needed here.
UNBUILDABLE = {
    "aya_vision", "dbrx", "deepseek_ocr2", "dots1", "gemma3n", "gemma4_assistant", "gemma4_unified_assistant", "hunyuan_v1_dense",
    "hunyuan_v1_moe", "ministral", "nemotron",
    "qwen3_omni_moe", "voxtral_realtime_text",
}  # fmt: skip


@pytest.mark.parametrize("model_type", sorted({*model_types()} - OTHER))
def test_default_config_counts_what_transformers_builds(model_type: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    if model_type not in transformers.CONFIG_MAPPING or class_of(model_type) is None:
        pytest.skip("remote code, a part of another model, or a newer class than this transformers has")
    try:
        config = transformers.CONFIG_MAPPING[model_type](**SAID.get(model_type, {}))
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            built = class_of(model_type)(config)
    except Exception:  # a class fails on its own defaults in any way it likes
        assert model_type in UNBUILDABLE
        pytest.skip("transformers cannot build its own default")
    written = json.loads(built.config.to_json_string(use_diff=False))
    read = read_config({**written, "model_type": model_type, "architectures": [type(built).__name__]})
    assert read.parameters == sum(p.numel() for p in built.parameters())


# Perturbed in a way that no published config is: what the readers do not follow, with the reason.
UNFOLLOWED = {
    "deepseek_v4": "mlp_bias puts biases on its shared expert alone",
    "helium": "an output projection as wide as the model, whatever the heads",
    "m2m_100": "untied, each side has an embedding of its own",
    "ovis2": "its default config has a head narrower than its decoder",
    "zamba": "its pattern of shared blocks is drawn for another depth",
    "zamba2": "its pattern of shared blocks is drawn for another depth",
}


@pytest.mark.parametrize("model_type", sorted({*model_types()} - OTHER)[::3])
def test_perturbed_configs_count_what_transformers_builds(model_type: str) -> None:
    """A third of the types, one perturbed config each; tools/sweep_types.py sweeps all."""
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    if model_type not in transformers.CONFIG_MAPPING or class_of(model_type) is None:
        pytest.skip("remote code, a part of another model, or a newer class than this transformers has")
    try:
        found = [*sweep.differences(model_type, range(1, 2))]
    except Exception:  # a class fails on its own defaults in any way it likes
        assert model_type in UNBUILDABLE
        pytest.skip("transformers cannot build its own default")
    assert model_type in UNFOLLOWED or not [each for each in found if each[0]]


# Depths that make no difference to a head, where a class takes them as they are.
SHALLOW = {"num_hidden_layers": 4, "n_layer": 4, "encoder_layers": 2, "decoder_layers": 2}
DEEP = {
    "afmoe",
    "gemma3n_text",
    "nemotron_h",
    "lfm2_moe",
    "zamba",
    "zamba2",
    "mllama_text_model",
    "qwen4_exp_text",
}  # their patterns want all layers
HEADS = ("", "FOR_SEQUENCE_CLASSIFICATION_", "FOR_TOKEN_CLASSIFICATION_", "FOR_QUESTION_ANSWERING_")


def shallow(model_type: str) -> dict[str, Any]:
    import transformers

    fields = {field.name for field in dataclasses.fields(transformers.CONFIG_MAPPING[model_type])}
    depths = {} if model_type in DEEP else {name: depth for name, depth in SHALLOW.items() if name in fields}
    return {**SAID.get(model_type, {}), **depths}


@pytest.mark.parametrize("model_type", sorted({*model_types()} - OTHER))
def test_the_body_alone_and_the_heads_of_other_tasks(model_type: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from transformers.models.auto import modeling_auto

    for table in HEADS:
        names = getattr(modeling_auto, f"MODEL_{table}MAPPING_NAMES").get(model_type)
        if not names or model_type not in transformers.CONFIG_MAPPING:
            continue
        name = names if isinstance(names, str) else names[0]
        try:
            with torch.device("meta"):
                built = getattr(transformers, name)(transformers.CONFIG_MAPPING[model_type](**shallow(model_type)))
        except Exception:  # a class fails on its own defaults in any way it likes
            assert model_type in UNBUILDABLE
            continue
        written = json.loads(built.config.to_json_string(use_diff=False))
        read = read_config({**written, "model_type": model_type, "architectures": [name]})
        assert read.parameters == sum(p.numel() for p in built.parameters()), name


def test_every_other_type_is_refused_by_name() -> None:
    transformers = pytest.importorskip("transformers")
    for model_type in {*transformers.CONFIG_MAPPING} - {*model_types()} - derived.names():
        told = f"model_type '{model_type}' has no family here: install the .torch. extra"
        if model_type in DECODERS:  # saved alone it is read as what it is like, and this one lacks its sizes
            told = "has no num_hidden_layers"
        with pytest.raises((UnmodelledError, ConfigError), match=told):
            read_config({"model_type": model_type, "hidden_size": 64})


# Decoders of models that see or hear, and a type of files beside its own.
DECODERS = frozenset({
    "deepseek_ocr2_text", "glm4v_moe_text", "glm4v_text", "glm_ocr_text", "granite_docling_text", "hunyuan_vl_text",
    "paddleocr_vl_text", "qwen2_5_omni_text", "qwen2_5_vl_text", "qwen2_vl_text", "qwen3_omni_moe_text", "qwen3_vl_moe_text",
    "qwen3_vl_text", "step3p5", "unlimited_ocr_text",
})  # fmt: skip


# One head per task, for each class that has it.
STEMS = {
    "bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "distilbert": "DistilBert", "electra": "Electra",
    "albert": "Albert", "mpnet": "MPNet", "deberta": "Deberta", "deberta-v2": "DebertaV2", "nomic_bert": "NomicBert",
    "gte": "Gte", "longformer": "Longformer", "megatron-bert": "MegatronBert",
}  # fmt: skip
TASKS = (
    "Model", "LMHeadModel", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification", "ForTokenClassification",
    "ForQuestionAnswering", "ForMultipleChoice", "ForNextSentencePrediction",
)  # fmt: skip


@pytest.mark.parametrize("model_type", STEMS)
def test_each_head_of_an_encoder(model_type: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    for task in TASKS:
        name = f"{STEMS[model_type]}{task}"
        if not hasattr(transformers, name):
            continue
        with torch.device("meta"):
            built = getattr(transformers, name)(transformers.CONFIG_MAPPING[model_type](num_labels=2))
        read = read_config({**json.loads(built.config.to_json_string(use_diff=False)), "architectures": [name]})
        assert read.parameters == sum(p.numel() for p in built.parameters()), name


def small(model_type: str) -> dict[str, Any]:
    """The class's default config with few layers."""
    raw = {**sweep.default_of(model_type), "model_type": model_type}
    return {name: 3 if name in SHALLOW and isinstance(value, int) and value > 3 else value for name, value in raw.items()}


@pytest.mark.parametrize("model_type", sorted(derived.names())[::4])
def test_derived_shapes_are_those_transformers_builds(model_type: str) -> None:
    """A quarter of the types whose shapes were derived, as their class has them and with other widths."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    for raw in (small(model_type), {**small(model_type), "vocab_size": 1000, "intermediate_size": 200}):
        found = sweep.counted(model_type, raw)
        if found is None:
            continue
        try:
            read = read_config(found[1]["whole"])
        except UnmodelledError:  # refused by name: outside of what was tried
            continue
        assert read.parameters == found[0]
