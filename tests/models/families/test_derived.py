"""Classes read from the table of derived shapes: published counts, refusals of what was never tried, damage named."""

from typing import Any

import msgspec
import pytest

from vramcast.errors import ConfigError, UnmodelledError
from vramcast.models.classes import readers
from vramcast.models.config import Config
from vramcast.models.families import derived, read_config
from vramcast.models.families.derived_fields import Fields

TROCR: dict[str, Any] = {
    "model_type": "trocr", "architectures": ["TrOCRForCausalLM"], "d_model": 1024, "decoder_layers": 12,
    "decoder_attention_heads": 16, "decoder_ffn_dim": 4096, "vocab_size": 50265, "max_position_embeddings": 512,
}  # fmt: skip


def test_a_decoder_with_cross_attention() -> None:
    """Per layer 4 + 4 projections of 1,024 with biases, an MLP of 4,096 and three norms; tied, positions two longer, one norm."""
    layer = 8 * (1024 * 1024 + 1024) + 2 * 1024 * 4096 + 4096 + 1024 + 3 * 2 * 1024
    outer = 50265 * 1024 + 514 * 1024 + 2 * 1024
    model = read_config(TROCR)
    assert model.parameters == 12 * layer + outer
    assert model.tied and model.layers == 12
    assert model.blocks[0].mixers[0].cache_elements == 2 * 1024
    assert model.blocks[0].cross is not None and not model.blocks[0].cross.causal


def test_names_are_those_of_the_checkpoint() -> None:
    named = {name: t.shape for name, t in read_config(TROCR).all_tensors()}
    assert named["model.decoder.layers.11.encoder_attn.k_proj.weight"] == (1024, 1024)
    assert named["model.decoder.embed_positions.weight"] == (514, 1024)


def test_an_untied_head_is_counted() -> None:
    untied = read_config({**TROCR, "tie_word_embeddings": False})
    assert untied.parameters == read_config(TROCR).parameters + 50265 * 1024


def test_a_depth_is_followed_and_absurd_ones_are_refused() -> None:
    assert read_config({**TROCR, "decoder_layers": 3}).layers == 3
    with pytest.raises(ConfigError, match="decoder_layers is 5000, expected 0 to 1024 layers"):
        read_config({**TROCR, "decoder_layers": 5000})


def test_a_config_without_sizes_is_refused_and_single_ones_are_named() -> None:
    with pytest.raises(ConfigError, match=r"is this the config\.json of a complete model"):
        read_config({"model_type": "trocr"})
    assumed = read_config({n: v for n, v in TROCR.items() if n != "vocab_size"}).assumed
    assert [(a.name, a.value) for a in assumed] == [("vocab_size", 50265)]


def test_a_word_for_a_number_is_named() -> None:
    with pytest.raises(ConfigError, match="d_model is 'wide', expected a whole number"):
        read_config({**TROCR, "d_model": "wide"})


def test_a_model_without_heads_is_refused() -> None:
    with pytest.raises(ConfigError, match="do not fit together"):
        read_config({**TROCR, "decoder_attention_heads": 0})


def test_another_class_of_the_type_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UnmodelledError, match="TrOCRForSomething of model_type 'trocr' is not known here, only TrOCRForCausalLM"):
        read_config({**TROCR, "architectures": ["TrOCRForSomething"]})


def test_a_value_that_was_never_tried_is_refused() -> None:
    row = derived.Row(architecture="X", fields={"kind": "plain"}, only={"kind": ["plain"]})
    with pytest.raises(UnmodelledError, match="kind is 'odd'; the shapes of this class are known here for 'plain'"):
        derived.described(Config({"kind": "odd"}), row)


def test_a_comparison_that_comes_out_otherwise_is_refused() -> None:
    condition = derived.Condition("!=", ("%", "width", "heads"), 0, False)
    row = derived.Row(architecture="X", fields={"width": 64, "heads": 4}, conditions=(condition,))
    with pytest.raises(UnmodelledError, match=r"\(width % heads\) != 0 is True here, and was False"):
        derived.described(Config({"width": 65}), row)


@pytest.mark.parametrize(
    ("how", "value"),
    [
        (("+", ("*", "a", 3), "b.c"), 37), (("//", "a", 4), 2), ("list.1", 8), (("len", "list"), 2),
        (("int", ("*", "a", 1.5)), 15),
        ("made", 20), ("forced", 10), (("**", "a", 2), 100), ("num_labels", 3),
    ],
)  # fmt: skip
def test_expressions(how: Any, value: int) -> None:
    known = {"a": 1, "b.c": 7, "list": [1, 1], "made": {"is": ("*", "a", 2)}, "forced": {"is": "a", "always": True}}
    raw = {"a": 10, "list": [4, 8], "forced": 99, "id2label": {"0": "x", "1": "y", "2": "z"}}
    assert Fields(Config(raw), known, {}).of(how) == value


def test_layers_are_told_apart_by_their_number_or_a_list() -> None:
    fields = Fields(Config({"kinds": ["x", "y"], "few": [1]}), {"kinds": [], "few": []}, {})
    assert [fields.of(("at", "kinds", "y"), i, 2) for i in range(2)] == [False, True]
    assert [fields.of(("in", "few"), i, 2) for i in range(2)] == [False, True]
    assert [fields.of(("==", "#", ("-", "##", 1)), i, 2) for i in range(2)] == [False, True]


@pytest.mark.parametrize("how", [("//", "a", "zero"), ("**", "a", 1000), ("+", "a", "text"), "list.9"])
def test_fields_that_do_not_fit_together_are_refused(how: Any) -> None:
    fields = Fields(Config({}), {"a": 4, "zero": 0, "text": "x", "list": [1]}, {})
    with pytest.raises(ConfigError):
        fields.of(how)


def test_every_row_reads_its_own_defaults_or_says_why_not() -> None:
    """No row may fail but by a refusal."""
    for kind in derived.names():
        for row in msgspec.json.decode(derived._rows()[kind], type=list[derived.Row]):
            try:
                sizes = {path: value for path, value in row.fields.items() if isinstance(value, int) and "." not in path}
                model = derived.described(Config({"model_type": kind, "architectures": [row.architecture], **sizes}), row)
            except (ConfigError, UnmodelledError):
                continue
            assert model.parameters > 0, kind


def test_no_type_is_both_derived_and_written_out() -> None:
    assert not derived.names() & readers().keys()


def test_a_class_of_two_forms_has_a_row_for_each() -> None:
    """LayoutLMv3 scores fewer than ten labels by one layer, others by two; 125,926,796 with twelve as transformers builds it."""
    raw = {
        "model_type": "layoutlmv3", "architectures": ["LayoutLMv3ForTokenClassification"], "hidden_size": 768,
        "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 50265,
        "max_position_embeddings": 514, "type_vocab_size": 1,
    }  # fmt: skip
    labels = {str(i): f"L{i}" for i in range(12)}
    assert read_config({**raw, "id2label": labels}).parameters == 125_926_796
    few = read_config({**raw, "id2label": {"0": "a", "1": "b"}}).parameters
    assert 125_926_796 - few == 768 * 768 + 768 + 768 * 12 + 12 - (768 * 2 + 2)


def test_both_forms_of_wav2vec2_and_hubert() -> None:
    """XLSR's layers normalise first and its convolutions have biases: 315,495,095 with 55 letters, as transformers builds it."""
    large: dict[str, Any] = {
        "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
        "feat_extract_norm": "layer", "conv_bias": True, "do_stable_layer_norm": True,
    }  # fmt: skip
    ctc = {"architectures": ["Wav2Vec2ForCTC"], "model_type": "wav2vec2"}
    assert read_config({**ctc, **large, "vocab_size": 55}).parameters == 315_495_095
    small = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
    assert read_config({**ctc, **small, "vocab_size": 77}).parameters == 94_430_925
    hubert = {"architectures": ["HubertForCTC"], "model_type": "hubert", "vocab_size": 32}
    assert read_config({**hubert, **large}).parameters == 315_471_520


@pytest.mark.parametrize(
    ("kind", "name", "window"),
    [("moshi", "MoshiForCausalLM", 3000), ("kyutai_speech_to_text", "KyutaiSpeechToTextForConditionalGeneration", 375)],
)
def test_every_layer_slides_where_the_class_says_so(kind: str, name: str, window: int) -> None:
    """transformers' DynamicCache keeps ``sliding_window`` tokens where a config has no ``layer_types``; null is no window."""
    raw = {"model_type": kind, "architectures": [name], "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}
    for said, kept in (({}, window), ({"sliding_window": 100}, 100), ({"sliding_window": None}, 0)):
        model = read_config({**raw, **said})
        assert {(block.name, mixer.window) for block in model.blocks for mixer in block.mixers} == {("model.layers.{}.", kept)}
