"""Bytes of matrices and models under every scheme, by hand."""

import msgspec
import pytest

from vramcast.errors import ConfigError, QuestionError, UnmodelledError
from vramcast.models.families import read_config
from vramcast.models.quantization import scheme_for, scheme_names, weight_bytes, weights_term
from vramcast.models.quantization.formats import ALIASES, GGML_BY_ID, GGML_TYPES, NAMED, ggml_type
from vramcast.models.quantization.habits import with_habits
from vramcast.models.quantization.methods import compact_config
from vramcast.models.quantization.plan import Plan
from vramcast.models.reading import read_model

LLAMA_8B = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": False,
}  # fmt: skip
LINEAR = 6_979_321_856
OTHER = 1_050_939_392
DOWN = 32 * 4096 * 14336
HQQ_DOWN = {"mlp.down_proj": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}
ROWS_PER_LAYER = 4096 + 1024 + 1024 + 4096 + 14336 + 14336 + 4096


def llama(**quantization):
    return read_config(LLAMA_8B | ({"quantization_config": quantization} if quantization else {}))


@pytest.mark.parametrize(
    ("scheme", "shape", "expected"),
    [
        ("bfloat16", (4, 8), 64),
        ("fp8", (256, 256), 65536 + 4),
        ("fp8-channel", (256, 512), 131072 + 256 * 4),
        ("fp8-block", (200, 300), 60000 + 2 * 3 * 4),
        ("llm.int8", (10, 20), 200 + 40 + 1),
        ("gptq", (256, 256), 32768 + 2 * 256 * 2 + 2 * 256 // 2 + 256 * 4),
        ("awq", (256, 256), 32768 + 2 * 256 * 2 + 2 * 256 // 2),
        ("nf4", (64, 64), 2048 + 64 * 4 + 64),
        ("nf4-dq", (64, 64), 2048 + 64 + 4 + 64 + 1028),
        ("mxfp4", (8, 64), 256 + 16),
        ("nvfp4", (8, 64), 256 + 32 + 8),
        ("aqlm", (4096, 4096), 4194304 + 1048576 + 8192),
        ("w4a16", (256, 256), 32768 + 512 * 2 + 16),
        ("mlx-4bit", (64, 64), 2048 + 64 * 4),
    ],
)
def test_a_matrix_takes_its_data_and_its_sidecars(scheme, shape, expected):
    assert NAMED[scheme].bytes_of(shape) == expected


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("q4_K", (2, 512), 2 * 288), ("q6_K", (1, 256), 210), ("iq4_ks", (3, 512), 3 * (272 + 4)), ("iq4_ks_r4", (3, 512), 828),
        ("iq2_bn", (1, 128), 36), ("q8_0_r8", (1, 64), 68), ("bf16_r16", (2, 3), 12), ("f32", (), 4), ("q8_0", (1, 40), 68),
    ],
)  # fmt: skip
def test_a_gguf_tensor_takes_whole_blocks_and_row_prefixes(name, shape, expected):
    assert ggml_type(name).size_of(shape) == expected


# ik_llama.cpp 8337e4cd, ggml/src/ggml-common.h (static_assert of each block) and ggml.c (row_meta_size of its type): bytes of a
# block of 256 elements (64 of the ternary types, 32 of q8_kv and the 1-bit rows), and what stands before each row
IK_TYPES = {
    "iq2_k": (256, 76, 0), "iq3_k": (256, 110, 0), "iq4_k": (256, 144, 0), "iq5_k": (256, 176, 0), "iq6_k": (256, 212, 0),
    "iq2_ks": (256, 70, 2), "iq3_ks": (256, 102, 2), "iq4_ks": (256, 136, 4), "iq5_ks": (256, 168, 4), "iq4_kss": (256, 128, 4),
    "iq2_kl": (256, 86, 2), "iq1_kt": (256, 56, 4), "iq2_kt": (256, 68, 4), "iq3_kt": (256, 100, 4), "iq4_kt": (256, 128, 4),
    "iq1_bn": (64, 13, 2), "iq2_bn": (64, 16, 4), "q8_kv": (32, 32, 8), "q6_0": (32, 26, 0),
    "iq1_s_r4": (32, 6, 2), "iq1_m_r4": (32, 7, 2), "iq2_bn_r4": (64, 16, 4), "iq4_ks_r4": (256, 136, 4),
    "iq5_ks_r4": (256, 168, 4), "q8_k_r8": (256, 258, 0), "q8_kv_r8": (32, 32, 4),
}  # fmt: skip


@pytest.mark.parametrize(("name", "block"), IK_TYPES.items())
def test_types_of_ik_llama_cpp_are_as_its_source_asserts(name, block):
    elements, block_bytes, before = block
    assert ggml_type(name).size_of((3, 64 * elements)) == 3 * (64 * block_bytes + before)


def test_gguf_type_ids_are_distinct():
    assert len(GGML_BY_ID) == len(GGML_TYPES)
    assert (GGML_BY_ID[12].name, GGML_BY_ID[344].name, GGML_BY_ID[230].name) == ("q4_k", "iq4_ks_r4", "bf16_r16")


@pytest.mark.parametrize("name", sorted({*scheme_names(), *ALIASES, "exl2-4.5", "4.65bpw", "none", "BF16"}))
def test_every_name_gives_a_scheme_no_larger_than_fp32(name):
    model = llama()
    assert 0 < weight_bytes(model, scheme_for(model, quant=name)) <= model.parameters * 8.1


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, LINEAR + OTHER * 2 + ROWS_PER_LAYER * 32 * 4 + 224),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, LINEAR // 2 + LINEAR // 16 + OTHER * 2 + 224 * 64),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, LINEAR // 2 + LINEAR // 128 * 5 // 2 + OTHER * 2),
        ({"quant_method": "fp8"}, LINEAR + OTHER * 2 + 224 * 4),
        ({"quant_method": "mxfp8"}, LINEAR + LINEAR // 32 + OTHER * 2),
        ({"quant_method": "fp_quant", "forward_dtype": "mxfp4"}, LINEAR // 2 + LINEAR // 32 + OTHER * 2),
        ({"quant_method": "higgs", "bits": 4, "group_size": 256}, LINEAR // 2 + LINEAR // 128 + OTHER * 2 + 224 * (32 + 1024)),
        ({"quant_method": "experts_int8"}, (LINEAR + OTHER) * 2),
        ({"quant_method": "hqq", "quant_config": HQQ_DOWN}, DOWN // 2 + DOWN // 16 + (LINEAR - DOWN + OTHER) * 2),
        ({"quant_algo": "FP8", "exclude_modules": ["lm_head"]}, LINEAR + OTHER * 2 + 224 * 8),
        ({"group_size": 64, "bits": 4}, (LINEAR + 2 * 128256 * 4096) * 9 // 16 + 65 * 4096 * 2),
    ],
)  # fmt: skip
def test_a_checkpoints_own_config_decides(config, expected):
    model = llama(**config)
    assert weight_bytes(model, scheme_for(model)) == expected


def test_ignored_layers_stay_in_sixteen_bits():
    model = llama(quant_method="fp8", modules_to_not_convert=["lm_head", "model.layers.0", "model.layers.31.mlp*"])
    layer, mlp = LINEAR // 32, 3 * 4096 * 14336
    linears = 224 - 7 - 3
    assert weight_bytes(model, scheme_for(model)) == LINEAR + layer + mlp + OTHER * 2 + linears * 4


def test_expressions_and_groups_of_compressed_tensors_are_followed():
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
    groups = {"a": {"targets": ["re:.*down_proj$"], "weights": weights}, "b": {"targets": ["Linear"], "weights": {"num_bits": 8}}}
    model = llama(quant_method="compressed-tensors", config_groups=groups, ignore=["lm_head", "re:.*self_attn.*"])
    term = weights_term(model, scheme_for(model))
    down = 32 * 14336 * 4096
    assert term.find("attention").bytes == 2 * 32 * 2 * 4096 * (4096 + 1024)
    assert term.find("feed_forward").bytes == down // 2 + down // 32 * 2 + 32 * 16 + 2 * down + 64 * 2


def test_kept_says_what_and_why():
    model = llama()
    kept = scheme_for(model, quant="awq").kept
    assert {k.what for k in kept} == {"embedding", "head", "norm"}
    assert sum(k.elements for k in kept) == OTHER
    assert kept[0].why == "a lookup, not a matrix product"


def test_terms_of_stages_add_up_and_ranks_share():
    model = llama()
    scheme = scheme_for(model, quant="awq")
    first = weights_term(model, scheme, layers=range(16), last=False)
    last = weights_term(model, scheme, layers=range(16, 32), first=False)
    assert first.bytes + last.bytes == weight_bytes(model, scheme)
    assert weight_bytes(model, scheme, tp=4) == pytest.approx(weight_bytes(model, scheme) / 4, rel=1e-3)


def test_a_tied_head_on_its_own_stage_is_a_copy():
    model = read_config(LLAMA_8B | {"tie_word_embeddings": True})
    scheme = scheme_for(model)
    assert weights_term(model, scheme, layers=range(0), first=False).find("head").bytes == 128256 * 4096 * 2


def test_a_name_that_repeats_the_checkpoint_keeps_its_config():
    model = llama(quant_method="gptq", bits=8, group_size=32)
    assert scheme_for(model, quant="gptq_marlin").name == "gptq-int8-g32"
    assert scheme_for(model, quant="awq").name == "awq-int4-g128"


def test_nvfp4_without_lists_follows_its_publisher():
    """Attention stays in 16 bits in families that the publisher's own lists leave it in; Llama is quantised whole."""
    config = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    whole, other = llama(**config), msgspec.structs.replace(llama(**config), family="gemma4")
    attention = 32 * 2 * 4096 * (4096 + 1024)
    assert weights_term(whole, scheme_for(whole)).find("attention").bytes < attention * 0.6
    assert weights_term(other, scheme_for(other)).find("attention").bytes == attention * 2
    listed = msgspec.structs.replace(other, quantization=config | {"exclude_modules": ["model.layers.0.mlp"]})
    assert weights_term(listed, scheme_for(listed)).find("attention").bytes < attention * 0.6


def test_a_head_that_is_named_is_quantised():
    layers = {"lm_head": {"quant_algo": "W4A16_NVFP4"}, "model.layers.0.mlp.up_proj": {"quant_algo": "FP8"}}
    model = llama(quant_method="modelopt", quant_algo="MIXED_PRECISION", quantized_layers=layers)
    head, up = 128256 * 4096, 4096 * 14336
    expected = 2 * (LINEAR + OTHER - head - up) + head * 9 // 16 + 4 + up + 8
    assert weight_bytes(model, scheme_for(model)) == expected


def test_asking_for_what_a_checkpoint_is_keeps_its_own_lists():
    weights = {"num_bits": 4, "type": "float", "group_size": 16}
    groups = {"a": {"targets": ["Linear"], "weights": weights}}
    model = llama(quant_method="compressed-tensors", config_groups=groups, ignore=["re:.*self_attn.*"])
    assert weight_bytes(model, scheme_for(model, quant="nvfp4")) == weight_bytes(model, scheme_for(model))
    assert scheme_for(model, quant="fp8").name == "fp8-tensor"


def test_what_a_quantised_checkpoint_keeps_is_in_sixteen_bits():
    raw = {k: v for k, v in LLAMA_8B.items() if k != "torch_dtype"} | {"quantization_config": {"quant_method": "awq"}}
    assert scheme_for(read_config(raw)).dtype == "bfloat16"
    assert scheme_for(read_config(raw), dtype="float32").dtype == "float32"


def test_folded_names_mean_the_same():
    names = [f"model.layers.{i}.mlp.gate_proj" for i in range(0, 32, 2)] + ["lm_head"]
    folded = compact_config({"quant_method": "fp8", "modules_to_not_convert": names})
    assert folded["modules_to_not_convert"] == [
        f"model.layers.{{{','.join(map(str, range(0, 32, 2)))}}}.mlp.gate_proj",
        "lm_head",
    ]
    a, b = llama(quant_method="fp8", modules_to_not_convert=names), msgspec.structs.replace(llama(), quantization=folded)
    assert weight_bytes(a, scheme_for(a)) == weight_bytes(b, scheme_for(b)) == LINEAR + OTHER * 2 + 16 * 4096 * 14336 + 208 * 4


@pytest.mark.parametrize(
    ("quant", "text"),
    [("awk", "unknown quantisation scheme 'awk': did you mean awq"), ("99bpw", "means 99 bits per weight: expected 0.5 to 32")],
)
def test_unknown_names_are_refused_with_the_nearest(quant, text):
    with pytest.raises(QuestionError, match=text):
        scheme_for(llama(), quant=quant)


@pytest.mark.parametrize(
    ("config", "error", "text"),
    [
        ({"quant_method": "sorcery"}, UnmodelledError, "quant_method 'sorcery' has no storage rule here"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["re:(["]}, ConfigError, "which is not read: a class is not"),
        ({"quant_method": "fp8", "modules_to_not_convert": [7]}, ConfigError, "names a module '7': expected a name"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["layers.{0-99999999}.mlp"]}, ConfigError, "expected ranges such as"),
        ({"quant_method": "gptq", "bits": -4}, ConfigError, "bits is -4, expected 1 to"),
        ({"quant_method": "modelopt", "quant_algo": "FP3"}, UnmodelledError, "quant_algo 'FP3' has no storage rule"),
    ],
)  # fmt: skip
def test_a_config_nobody_can_mean_is_refused(config, error, text):
    with pytest.raises(error, match=text):
        model = llama(**config)
        weight_bytes(model, scheme_for(model))


def test_the_number_in_gptq_s_inner_modules_is_an_expert_and_not_a_layer() -> None:
    """modules_in_block_to_quantize speaks of every layer: experts are stored in 4 bits in all of them."""
    config = {
        "model_type": "qwen2_moe", "hidden_size": 1024, "intermediate_size": 2048, "moe_intermediate_size": 512,
        "vocab_size": 1024,
        "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8, "num_experts": 4, "num_experts_per_tok": 2,
        "shared_expert_intermediate_size": 512, "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
    }  # fmt: skip
    named = [[f"mlp.experts.{i}.{part}_proj" for i in range(4)] for part in ("gate", "up", "down")]
    experts = {"quant_method": "gptq", "bits": 4, "group_size": 128, "modules_in_block_to_quantize": named}
    model = read_config(config | {"quantization_config": experts})
    elements, scheme = 4 * 4 * 3 * 1024 * 512, scheme_for(model, quant=None, dtype="bfloat16")
    forms = [scheme.formats(t, prefix=b.name, indices=b.indices) for b in model.blocks for t in b.tensors if t.copies == 4]
    assert elements == sum(t.elements * b.count for b in model.blocks for t in b.tensors if t.copies == 4)
    assert forms
    assert all(form.name == "gptq-int4-g128" for found in forms for form in found)


def test_nvidia_s_recipe_is_not_applied_to_another_publisher() -> None:
    kept = {
        name: with_habits(Plan(name="nvfp4", rules=()), msgspec.structs.replace(llama(), id=name, family="qwen3_5")).ignore
        for name in ("nvidia/Qwen3.5-27B-NVFP4", "RedHatAI/Qwen3.5-27B-NVFP4", "Qwen/Qwen3.5-27B")
    }
    assert "*self_attn*" in kept["nvidia/Qwen3.5-27B-NVFP4"]
    assert "*self_attn*" in kept["Qwen/Qwen3.5-27B"]
    assert "*self_attn*" not in kept["RedHatAI/Qwen3.5-27B-NVFP4"]
    assert "*linear_attn*" in kept["RedHatAI/Qwen3.5-27B-NVFP4"]


def test_integers_of_recurrent_hybrids_leave_what_the_compressor_leaves() -> None:
    hybrid = read_model("Qwen/Qwen3-Next-80B-A3B-Instruct", offline=True)
    kept = {
        name: with_habits(Plan(name="awq-int4-g128", rules=()), msgspec.structs.replace(hybrid, id=name)).ignore
        for name in ("cyankiwi/Qwen3-Next-80B-A3B-Instruct-AWQ-4bit", "someone/Qwen3-Next-80B-A3B-Instruct-AWQ")
    }
    assert all("*linear_attn*" in patterns for patterns in kept.values())
    assert ["*shared_expert*" in patterns for patterns in kept.values()] == [True, False]
    assert with_habits(Plan(name="awq-int4-g128", rules=()), llama()).ignore == ()


def test_ggml_types_quantise_the_embeddings_too() -> None:
    """Llama-3.2-3B in Q8_0 is 3.2 GiB, read by any engine: 34 bytes for 32 numbers, of the tied table as well."""
    model = read_model("meta-llama/Llama-3.2-3B-Instruct", offline=True)
    assert weight_bytes(model, scheme_for(model, quant="Q8_0")) == pytest.approx(3_212_749_824 * 34 / 32, rel=2e-3)


def test_two_models_of_the_catalogue_have_the_types_that_they_are_stored_in() -> None:
    for name, size in (("moonshotai/Kimi-K2-Thinking", 594e9), ("baichuan-inc/Baichuan-7B", 14e9)):
        model = read_model(name, offline=True)
        assert weight_bytes(model, scheme_for(model)) == pytest.approx(size, rel=0.02)


T5_XXL = {
    "model_type": "t5", "architectures": ["T5EncoderModel"], "d_model": 4096, "d_ff": 10240, "d_kv": 64, "num_heads": 64,
    "num_layers": 24, "num_decoder_layers": 24, "vocab_size": 32128, "feed_forward_proj": "gated-gelu", "torch_dtype": "float16",
    "relative_attention_num_buckets": 32, "tie_word_embeddings": False,
}  # fmt: skip


def test_bitsandbytes_leaves_the_second_layer_of_t5_s_mlps_in_float32() -> None:
    """FLUX's text encoder in nf4: 6,328,582,592 bytes by its index; its scales' code books and states are what is left."""
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    model = read_config({**T5_XXL, "quantization_config": config})
    assert weight_bytes(model, scheme_for(model)) == pytest.approx(6_328_582_592, rel=1e-4)
    plain = read_config(T5_XXL)
    assert weight_bytes(plain, scheme_for(plain, quant="nf4")) == weight_bytes(model, scheme_for(model))
    awq = weight_bytes(plain, scheme_for(plain, quant="awq"))
    assert awq < weight_bytes(model, scheme_for(model)) - 24 * 4096 * 10240 * 3
