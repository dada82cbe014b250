"""Trained parameters of every adapter kind against PEFT itself, on small models of eight families built without memory."""

import warnings
from functools import cache
from typing import Any

import pytest

from vramcast.models.families import read_config
from vramcast.models.inventory import Model
from vramcast.training.forecast import forecast_training
from vramcast.workload import Adapter, Training

pytestmark = pytest.mark.torch
LLAMA = {
    "vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "qwen2": LLAMA,
    "gemma2": LLAMA | {"head_dim": 16, "pad_token_id": 0},
    "phi": LLAMA | {"num_key_value_heads": 4},
    "opt": {"vocab_size": 128, "hidden_size": 64, "ffn_dim": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
            "word_embed_proj_dim": 64, "max_position_embeddings": 256},
    "gpt2": {"vocab_size": 128, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 256, "bos_token_id": 1,
             "eos_token_id": 2},
    "mixtral": LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": LLAMA | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16},
}  # fmt: skip
NEEDS_NUMBERS = ("ShiraConfig", "BOFTConfig")  # draw a mask, or look at their permutations
ATTENTION = {"gpt2": ("c_attn",), "opt": ("q_proj", "v_proj")}
DOWN = {"gpt2": "c_proj", "opt": "fc2", "phi": "fc2"}
DENSE = [name for name in FAMILIES if name not in ("mixtral", "qwen3_moe")]


def built(family: str, device: str = "meta") -> Any:
    import torch
    import transformers

    made = transformers.AutoConfig.for_model(family, **FAMILIES[family])
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(made)


@cache
def ours(family: str) -> Model:
    return read_config({**FAMILIES[family], "model_type": family, "architectures": [type(built(family)).__name__]})


def trained(family: str, config: Any) -> int:
    import torch
    from peft import get_peft_model

    device = "cpu" if type(config).__name__ in NEEDS_NUMBERS else "meta"
    with torch.device(device), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted = get_peft_model(built(family, device), config)
    return sum(p.numel() for p in adapted.parameters() if p.requires_grad)


def counted(family: str, adapter: Adapter) -> int:
    method = adapter.kind if adapter.kind != "lora" else "lora"
    question = Training(model=family, method=method, adapter=adapter, seq=64)
    return forecast_training(question, model=ours(family)).trainable_parameters


def attention(family: str) -> tuple[str, ...]:
    return ATTENTION.get(family, ("q_proj", "v_proj"))


# (kind here, PEFT's config class, its arguments, our rank, our further sizes)
KINDS: list[tuple[str, str, dict[str, Any], int, dict[str, int]]] = [
    ("lora", "LoraConfig", {"r": 4}, 4, {}),
    ("rslora", "LoraConfig", {"r": 6, "use_rslora": True}, 6, {}),
    ("dora", "LoraConfig", {"r": 4, "use_dora": True}, 4, {}),
    ("adalora", "AdaLoraConfig", {"init_r": 12, "target_r": 8, "total_step": 100}, 12, {}),
    ("vera", "VeraConfig", {"r": 16}, 16, {}),
    ("loha", "LoHaConfig", {"r": 4}, 4, {}),
    ("lokr", "LoKrConfig", {"r": 2}, 2, {}),
    ("lokr", "LoKrConfig", {"r": 2, "decompose_both": True, "decompose_factor": 4}, 2,
     {"decompose_both": 1, "decompose_factor": 4}),
    ("oft", "OFTConfig", {"oft_block_size": 16}, 8, {"oft_block_size": 16}),
    ("oft", "OFTConfig", {"oft_block_size": 24}, 8, {"oft_block_size": 24}),
    ("oft", "OFTConfig", {"oft_block_size": 8, "block_share": True}, 8, {"oft_block_size": 8, "block_share": 1}),
    ("boft", "BOFTConfig", {"boft_block_size": 8}, 8, {"boft_block_size": 8}),
    ("vblora", "VBLoRAConfig", {"r": 4, "vector_length": 16, "num_vectors": 10}, 4, {"vector_length": 16, "num_vectors": 10}),
    ("fourierft", "FourierFTConfig", {"n_frequency": 50}, 8, {"n_frequency": 50}),
    ("hra", "HRAConfig", {"r": 4}, 4, {}),
    ("c3a", "C3AConfig", {"block_size": 16}, 8, {"block_size": 16}),
    ("randlora", "RandLoraConfig", {"r": 12}, 12, {}),
    ("shira", "ShiraConfig", {"r": 4}, 4, {}),
    ("miss", "MissConfig", {"r": 8}, 8, {}),
    ("bat", "MissConfig", {"r": 8, "init_weights": "bat"}, 8, {}),
    ("miss_mini", "MissConfig", {"r": 8, "init_weights": "mini", "mini_r": 4}, 8, {"mini_r": 4}),
]  # fmt: skip
NO_CONV1D = {"randlora", "hra", "c3a", "shira", "miss", "bat", "miss_mini", "boft", "loha", "lokr", "oft"}


@pytest.mark.parametrize("family", DENSE)
@pytest.mark.parametrize(("kind", "config", "given", "rank", "sizes"), KINDS, ids=[f"{k[0]}-{i}" for i, k in enumerate(KINDS)])
def test_adapters_beside_attention(
    family: str, kind: str, config: str, given: dict[str, Any], rank: int, sizes: dict[str, int]
) -> None:
    peft = pytest.importorskip("peft")
    if family == "gpt2" and kind in NO_CONV1D:
        pytest.skip("PEFT adapts linear layers only")
    made = getattr(peft, config)(target_modules=list(attention(family)), task_type="CAUSAL_LM", **given)
    adapter = Adapter(kind=kind, rank=rank, targets=attention(family), sizes=sizes, dora=kind == "dora")
    assert counted(family, adapter) == trained(family, made)


@pytest.mark.parametrize("family", FAMILIES)
def test_lora_on_every_linear_layer(family: str) -> None:
    peft = pytest.importorskip("peft")
    made = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    assert counted(family, Adapter(rank=4, targets=("all-linear",))) == trained(family, made)


@pytest.mark.parametrize("family", DENSE)
def test_ia3_scales_outputs_and_the_inputs_of_feed_forward(family: str) -> None:
    peft = pytest.importorskip("peft")
    down = DOWN.get(family, "down_proj")
    if family == "gpt2":
        pytest.skip("c_proj is two layers of different roles there")
    made = peft.IA3Config(target_modules=[*attention(family), down], feedforward_modules=[down], task_type="CAUSAL_LM")
    assert counted(family, Adapter(kind="ia3", targets=(*attention(family), down))) == trained(family, made)


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe"])
def test_lora_of_fused_experts(family: str) -> None:
    peft = pytest.importorskip("peft")
    names = ("mlp.experts.gate_up_proj", "mlp.experts.down_proj")
    made = peft.LoraConfig(r=4, target_modules=["q_proj"], target_parameters=list(names), task_type="CAUSAL_LM")
    assert counted(family, Adapter(rank=4, targets=("q_proj",), parameters=names)) == trained(family, made)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("kind", "config", "given", "sizes"),
    [
        ("prompt", "PromptTuningConfig", {"num_virtual_tokens": 7}, {"num_virtual_tokens": 7}),
        ("prefix", "PrefixTuningConfig", {"num_virtual_tokens": 7}, {"num_virtual_tokens": 7}),
        ("prefix", "PrefixTuningConfig", {"num_virtual_tokens": 7, "prefix_projection": True, "encoder_hidden_size": 48},
         {"num_virtual_tokens": 7, "projection": 1, "encoder_hidden_size": 48}),
        ("p_tuning", "PromptEncoderConfig", {"num_virtual_tokens": 7, "encoder_hidden_size": 48},
         {"num_virtual_tokens": 7, "encoder_hidden_size": 48}),
    ],
)  # fmt: skip
def test_virtual_tokens(family: str, kind: str, config: str, given: dict[str, Any], sizes: dict[str, int]) -> None:
    peft = pytest.importorskip("peft")
    made = getattr(peft, config)(task_type="CAUSAL_LM", **given)
    assert counted(family, Adapter(kind=kind, sizes=sizes)) == trained(family, made)


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2", "gpt2"])
def test_norms(family: str) -> None:
    peft = pytest.importorskip("peft")
    assert counted(family, Adapter(kind="ln_tuning")) == trained(family, peft.LNTuningConfig(task_type="CAUSAL_LM"))


def test_single_tokens() -> None:
    peft = pytest.importorskip("peft")
    made = peft.TrainableTokensConfig(token_indices=[3, 4, 5], target_modules=["embed_tokens"], task_type="CAUSAL_LM")
    assert counted("llama", Adapter(kind="trainable_tokens", sizes={"tokens": 3})) == trained("llama", made)


@pytest.mark.parametrize("family", ["llama", "qwen2", "phi"])
def test_modules_saved_beside_lora(family: str) -> None:
    peft = pytest.importorskip("peft")
    saved = ("embed_tokens", "lm_head")
    made = peft.LoraConfig(r=4, target_modules=list(attention(family)), modules_to_save=list(saved), task_type="CAUSAL_LM")
    head_bias = 128 if family == "phi" else 0
    adapter = Adapter(rank=4, targets=attention(family), modules_to_save=saved)
    assert counted(family, adapter) + head_bias in (trained(family, made), trained(family, made) + head_bias)
