"""Fuzz of the three parsers for a few seconds: whatever comes in, a model or one clear error comes out."""

import json
import struct

import pytest
import small_checkpoint as small
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramcast.errors import VramcastError
from vramcast.models.families import model_types
from vramcast.models.quantization import scheme_for, weight_bytes
from vramcast.models.sources import gguf, safetensors
from vramcast.models.sources.described import from_config, from_gguf
from vramcast.models.sources.strict import parse_json

# No deadline: the first unknown model_type imports transformers, which takes seconds.
BRIEF = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

EDGES = st.sampled_from([0, 1, 2**31 - 1, 2**31, "0", "{}", [[]], {}])
NUMBERS = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats())
NESTED = st.one_of(st.lists(st.integers(-2, 5), max_size=4), st.dictionaries(st.text(max_size=4), st.integers(), max_size=2))
WRONG = st.one_of(NUMBERS, st.text(max_size=8), NESTED, EDGES)
DAMAGE = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=12)


def survives(ask) -> None:
    """Either an answer or an error of ours with a message of one line."""
    try:
        ask()
    except VramcastError as error:
        assert str(error) and "\n" not in str(error)[:200]


def damaged(data: bytes, damage, cut: int | None = None) -> bytes:
    body = bytearray(data)
    for place, value in damage:
        body[place % len(body)] = value
    return bytes(body[: cut % len(body)] if cut is not None else body)


def answer(raw: dict) -> None:
    model = from_config(raw, name="fuzz", where="config.json")
    weight_bytes(model, scheme_for(model))
    assert model.parameters >= 0


@BRIEF
@given(st.sampled_from(sorted(small.CONFIG)), WRONG)
def test_a_config_with_one_field_wrong(field, value):
    survives(lambda: answer(small.CONFIG | {field: value}))


@BRIEF
@given(st.sampled_from(sorted(model_types())), st.dictionaries(st.sampled_from(sorted(small.CONFIG)), WRONG, max_size=4))
def test_any_family_with_fields_wrong(kind, wrong):
    survives(lambda: answer(small.CONFIG | wrong | {"model_type": kind}))


METHODS = ["fp8", "gptq", "awq", "bitsandbytes", "compressed-tensors", "modelopt", "quark", "torchao", "hqq", "aqlm", "mlx"]
SCHEME_FIELDS = [
    "bits",
    "group_size",
    "weight_block_size",
    "modules_to_not_convert",
    "config_groups",
    "ignore",
    "quantized_layers",
    "quant_algo",
    "quant_type",
    "dynamic",
    "extra_config",
    "load_in_8bit",
    "global_quant_config",
    "num_codebooks",
    "nbits_per_codebook",
]
GROUPS = st.dictionaries(st.text(max_size=6), st.dictionaries(st.sampled_from(["weights", "num_bits", "targets"]), WRONG))


@BRIEF
@given(st.sampled_from(METHODS), st.dictionaries(st.sampled_from(SCHEME_FIELDS), st.one_of(WRONG, GROUPS), max_size=4))
def test_a_quantization_config_with_fields_wrong(method, fields):
    survives(lambda: answer(small.CONFIG | {"quantization_config": fields | {"quant_method": method}}))


@BRIEF
@given(DAMAGE, st.one_of(st.none(), st.integers(0, 10**6)))
def test_a_config_with_bytes_changed(damage, cut):
    data = damaged(json.dumps(small.CONFIG).encode(), damage, cut)
    survives(lambda: answer(parse_json(data, "config.json")))


@BRIEF
@given(st.binary(max_size=200))
def test_bytes_that_claim_to_be_json(data):
    survives(lambda: parse_json(data, "config.json"))


@BRIEF
@given(DAMAGE, st.one_of(st.none(), st.integers(0, 10**6)))
def test_a_safetensors_file_with_bytes_changed(damage, cut):
    header, size = small.safetensors_header(small.tensors())
    data = damaged(header, damage, cut)
    survives(lambda: safetensors.read_header(small.Bytes(data, "x.safetensors", len(data) if cut else len(data) + size)))


@BRIEF
@given(
    st.dictionaries(
        st.text(max_size=6), st.fixed_dictionaries({"dtype": WRONG, "shape": WRONG, "data_offsets": WRONG}), max_size=3
    )
)
def test_a_safetensors_header_with_anything_in_it(entries):
    body = json.dumps(entries).encode()
    survives(lambda: safetensors.read_header(small.Bytes(struct.pack("<Q", len(body)) + body + bytes(64), "x.safetensors")))


def read_gguf(data: bytes) -> None:
    header = gguf.read_header(small.Bytes(data, "x.gguf"))
    model = from_gguf(header, name="x", where="x.gguf")
    weight_bytes(model, scheme_for(model))


@BRIEF
@given(DAMAGE, st.one_of(st.none(), st.integers(0, 10**6)))
def test_a_gguf_file_with_bytes_changed(damage, cut):
    whole = small.gguf_bytes()
    head = gguf.read_header(small.Bytes(whole, "x.gguf")).data_offset
    survives(lambda: read_gguf(damaged(whole[:head], damage, cut) + (b"" if cut else whole[head:])))


ARCHITECTURES = ["llama", "gemma3", "deepseek2", "gpt-oss", "qwen3next", "mamba", "nemotron_h", "lfm2", "jamba", "falcon-h1"]
GGUF_FIELDS = [
    "block_count",
    "embedding_length",
    "attention.head_count",
    "attention.head_count_kv",
    "feed_forward_length",
    "ssm.inner_size",
    "ssm.time_step_rank",
    "ssm.state_size",
    "expert_count",
    "attention.sliding_window_pattern",
    "rope.dimension_count",
]
COUNTS = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 9))


@BRIEF
@given(st.sampled_from(ARCHITECTURES), st.dictionaries(st.sampled_from(GGUF_FIELDS), COUNTS, max_size=6))
def test_gguf_metadata_with_anything_in_it(architecture, fields):
    pairs = [small.pair("general.architecture", 8, small.text(architecture))]
    pairs += [small.pair(f"{architecture}.{name}", 10, struct.pack("<Q", value)) for name, value in fields.items()]
    survives(lambda: read_gguf(small.gguf_bytes(pairs=pairs)))


def mutated(raw: dict, random) -> dict:
    """A copy of a config with one value somewhere in it replaced or gone."""
    field = random.choice(list(raw))
    if isinstance(raw[field], dict) and raw[field] and random.random() < 0.8:
        return raw | {field: mutated(raw[field], random)}
    wrong = random.choice(
        [None, 0, -1, 7, 2**31, 2**70, 1e300, float("nan"), -0.5, "", "x", [], {}, [[]], [0], ["a"], {"a": 1}, True]
    )
    return {k: v for k, v in raw.items() if k != field} if random.random() < 0.15 else raw | {field: wrong}


@pytest.mark.shared
@settings(BRIEF, max_examples=400)
@given(st.randoms(use_true_random=False))
def test_published_configs_with_values_wrong(shared, random):
    file = random.choice(sorted(shared.glob("models/*/config.json")))
    survives(lambda: answer(mutated(parse_json(file.read_bytes(), "config.json"), random)))


@pytest.mark.parametrize("layers", [10_001, 2**31 - 1, 1e300, float("inf")])
@pytest.mark.parametrize("field", ["num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "depth"])
def test_no_count_of_layers_is_written_out_beyond_reason(field, layers):
    with pytest.raises(VramcastError, match=rf"{field} is .*, expected at most 1024"):
        answer(small.CONFIG | {field: layers})
