"""Llama and the dense classes that share its skeleton: one row each.

Source of names, shapes and defaults: the modeling and configuration files of each class in transformers 5.23.
"""

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import draft, parts, skeleton, spans
from vramcast.models.families.skeleton import GEMMA_NORMS, GLM4_NORMS, Style
from vramcast.models.inventory import Model, Tensor
from vramcast.models.layers import Attention, Dense, Experts, LatentAttention

_DELAY_WIDTH = 32
_AFTER = ("post_attention_layernorm", "post_feedforward_layernorm")


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A dense Llama-like model; a class without a row below has Llama's plain skeleton."""
    return skeleton.read(config, STYLES.get(config.text("model_type"), Style()), prefix=prefix)


def _bitnet(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """BitNet normalises before the output and down projections."""
    inner = parts.norms(feed.intermediate, "mlp.ffn_sub_norm")
    return parts.norms(config.size("hidden_size"), "self_attn.attn_sub_norm") + inner


def _apertus(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """The learned xIELU activation: two scalars, and two stored constants."""
    learned = tuple(Tensor(name=f"mlp.act_fn.alpha_{sign}", shape=(1,), role="state") for sign in "pn")
    fixed = tuple(Tensor(name=f"mlp.act_fn.{name}", shape=(), role="state", kind="buffer") for name in ("beta", "eps"))
    return learned + fixed


def _diff(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """Differential attention's four lambda vectors."""
    return tuple(Tensor(name=f"self_attn.lambda_{n}", shape=(kind.head_dim,), role="state") for n in ("q1", "k1", "q2", "k2"))


def _doge(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """Doge's dynamic mask and scaled residuals."""
    hidden, kv_heads = config.size("hidden_size"), config.size("num_key_value_heads", default=kind.heads)
    residuals = tuple(Tensor(name=n, shape=(hidden,), role="norm") for n in ("input_residual", "post_attention_residual"))
    mask = parts.linear(
        "self_attn.dt_proj", kv_heads, kv_heads * kind.head_dim, "mixer", shard=0, bias=config.flag("attention_bias")
    )
    return (*residuals, Tensor(name="self_attn.A", shape=(kv_heads,), role="state", shard=0), *mask)


def _hyperclova(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """HyperCLOVA X's optional norms after each half of the layer."""
    return parts.norms(config.size("hidden_size"), "post_norm1", "post_norm2") if config.flag("use_post_norm") else ()


def _delay(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """Voxtral Realtime's layers are scaled by what two narrow matrices make of the delay."""
    hidden = config.size("hidden_size")
    into = parts.linear("ada_rms_norm.linear1", _DELAY_WIDTH, hidden, "mixer", shard=None)
    return (*into, *parts.linear("ada_rms_norm.linear2", hidden, _DELAY_WIDTH, "mixer", shard=None))


def _yuan(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """Yuan 2 filters queries and keys through two convolutions over two tokens, and a norm."""
    if config.flag("use_shareqk", default=False):
        raise UnmodelledError(f"{config.path}: use_shareqk is true; Yuan's shared queries and keys have no rule")
    hidden, name = config.size("hidden_size"), "self_attn.lf_gate."
    rows = ((f"{name}conv1", hidden // 2, hidden), (f"{name}conv2", hidden, hidden // 2))
    filters = (
        each
        for to, outputs, inputs in rows
        for each in (
            Tensor(name=f"{to}.weight", shape=(outputs, inputs, 2, 1), role="conv"),
            Tensor(name=f"{to}.bias", shape=(outputs,), role="conv"),
        )
    )
    return (*filters, *parts.norms(hidden, f"{name}output_layernorm"))


def _new_words(config: Config, prefix: str) -> tuple[Tensor, ...]:
    """Molmo 2 reads words that it never says: rows of the embedding that the head lacks."""
    rows = config.size("additional_vocab_size", default=128)
    return (Tensor(name=f"{prefix}embed_tokens.new_embedding", shape=(rows, config.size("hidden_size")), role="embedding"),)


STYLES: dict[str, Style] = {
    "llama": Style(mlp_bias="mlp_bias"),
    "mistral": Style(span=spans.uniform, qkv_bias=False, out_bias=False),
    "ministral": Style(span=spans.uniform, qkv_bias=False, out_bias=False),
    "ministral3": Style(span=spans.uniform, qkv_bias=False, out_bias=False),
    "qwen2": Style(span=spans.above, qkv_bias=True, out_bias=False),
    "qwen3": Style(span=spans.above, qk_norm="head"),
    "phi3": Style(span=spans.uniform, qkv_bias=False, out_bias=False, fused_qkv=True, mlp="fused"),
    "granite": Style(mlp_bias="mlp_bias"),
    "granite_swa": Style(span=spans.every(4, first=True), mlp_bias="mlp_bias", sinks=True),
    "smollm3": Style(span=spans.without_rope, mlp_bias="mlp_bias"),
    "seed_oss": Style(out_bias="attention_out_bias", mlp_bias="mlp_bias"),
    "arcee": Style(mlp="plain", mlp_bias="mlp_bias"),
    "helium": Style(out_bias=False, mlp_bias="mlp_bias"),
    "olmo": Style(norms=(), final_norm=""),
    "olmo2": Style(qk_norm="all", norms=_AFTER),
    "olmo3": Style(span=spans.every(4), qk_norm="all", norms=_AFTER),
    "cohere": Style(qk_norm="heads", qk_norm_if="use_qk_norm", norms=("input_layernorm",)),
    "cohere2": Style(span=spans.every(4), norms=("input_layernorm",)),
    "glm": Style(out_bias=False, mlp="fused"),
    "glm4": Style(out_bias=False, mlp="fused", norms=GLM4_NORMS),
    "ernie4_5": Style(qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias"),
    "exaone4": Style(span=spans.every(4), qkv_bias=False, out_bias=False, qk_norm="head", norms=_AFTER),
    "starcoder2": Style(
        span=spans.uniform, qkv_bias="use_bias", out_bias="use_bias", mlp="plain", mlp_names=("c_fc", "c_proj"),
        mlp_bias="use_bias", norm_bias=True,
    ),
    "stablelm": Style(
        qkv_bias="use_qkv_bias", out_bias=False, qk_norm="each", qk_norm_if="qk_layernorm",
        qk_names=("q_layernorm", "k_layernorm"), norm_bias=True, head_dim=False,
    ),
    "nemotron": Style(mlp="plain", mlp_bias="mlp_bias", norm_bias=True),
    "apertus": Style(qk_norm="head", mlp="plain", norms=("attention_layernorm", "feedforward_layernorm"), extra=_apertus),
    "bitnet": Style(extra=_bitnet),
    "hunyuan_v1_dense": Style(qk_norm="head", qk_names=("query_layernorm", "key_layernorm")),
    "internlm3": Style(mlp_bias="mlp_bias"),
    "cwm": Style(span=spans.every(4, first=True), qkv_bias=False, out_bias=False, mlp_bias="mlp_bias"),
    "jais2": Style(mlp="plain", mlp_bias="mlp_bias", norm_bias=True),
    "gemma2": Style(span=spans.every(2), softcap=True, norms=GEMMA_NORMS),
    "gemma3_text": Style(span=spans.every(6), qk_norm="head", norms=GEMMA_NORMS),
    "vaultgemma": Style(span=spans.every(2), softcap=True, norms=("input_layernorm", "pre_feedforward_layernorm")),
    "iquestcoder": Style(mlp_bias="mlp_bias"),
    "hyperclovax": Style(mlp_bias="mlp_bias", extra=_hyperclova),
    "nanochat": Style(mlp="plain", mlp_names=("fc1", "fc2"), norms=(), final_norm=""),
    "diffllama": Style(extra=_diff),
    "doge": Style(span=spans.uniform, qk_norm="head", extra=_doge, mlp_bias="mlp_bias"),
    "phi": Style(
        qkv_bias=True, out_bias=True, out="dense", mlp="plain", mlp_names=("fc1", "fc2"), mlp_bias=True,
        norms=("input_layernorm",), norm_bias=True, final_norm="final_layernorm", head_bias=True, qk_norm="head",
        qk_norm_if="qk_layernorm", qk_names=("q_layernorm", "k_layernorm"), qk_bias=True,
    ),
    "voxtral_realtime_text": Style(span=spans.uniform, qkv_bias=False, out_bias=False, extra=_delay),
    "molmo2_text": Style(qk_norm="head", outer=_new_words),
    # Remote-code classes: the modeling file beside each checkpoint on the hub.
    "mimo": Style(qkv_bias=True, out_bias=False, mtp=draft.mimo),
    "Dream": Style(qkv_bias=True, out_bias=False),
    "orion": Style(norm_bias=True),
    "internlm": Style(qkv_bias="bias", out_bias="bias"),
    "PanguEmbedded": Style(qkv_bias="bias", out_bias="bias"),
    "yuan": Style(extra=_yuan),
}  # fmt: skip
