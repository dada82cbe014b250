"""T5, mT5, UMT5, LongT5 and Switch: an encoder and a decoder that attends to it, positions only as biases on attention.

Source of names and shapes: transformers 5.23, modeling_t5.py, modeling_mt5.py, modeling_umt5.py, modeling_longt5.py and
modeling_switch_transformers.py.
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import parts
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense, Experts


def read(config: Config) -> Model:
    """A T5 model; the encoder is a tower.

    transformers always ties the head, whatever the config says (configuration_t5.py); where it says untied (T5 1.1, mT5) the
    checkpoint stores a head of its own.
    """
    hidden = config.size("d_model", "hidden_size")
    layers = config.size("num_layers", "num_hidden_layers")
    encoder = Tower(
        name="encoder.",
        kind="encoder",
        hidden=hidden,
        blocks=_stacked(config, hidden, layers, "encoder"),
        tensors=(*parts.norms(hidden, "encoder.final_layer_norm"), *_first_bias(config, "encoder")),
    )
    task = config.architecture
    if task.endswith(("EncoderModel", "ForTokenClassification")):
        return _encoder_alone(config, hidden, encoder, task)
    model = parts.decoder(
        Config({**config.raw, "tie_word_embeddings": True}, config.path),
        hidden=hidden,
        blocks=_stacked(config, hidden, config.size("num_decoder_layers", default=layers), "decoder"),
        embedding="shared.weight",
        norm=parts.norms(hidden, "decoder.final_layer_norm"),
        towers=(encoder,),
        extra=(*_first_bias(config, "decoder"), *_scores(config, hidden, task)),
    )
    return msgspec.structs.replace(model, head_stored=not config.flag("tie_word_embeddings", default=True))


def _scores(config: Config, hidden: int, task: str) -> tuple[Tensor, ...]:
    """A classifier of sequences (with a layer before it) or of tokens, or the ends of an answer."""
    if task.endswith("ForQuestionAnswering"):
        return parts.linear("qa_outputs", 2, hidden, "head", shard=None, bias=True)
    if not task.endswith(("ForSequenceClassification", "ForTokenClassification")):
        return ()
    named = config.optional_child("id2label")
    labels = len(named.raw) if named else config.size("num_labels", default=2)
    if task.endswith("ForTokenClassification"):
        return parts.linear("classifier", labels, hidden, "head", shard=None, bias=True)
    dense = parts.linear("classification_head.dense", hidden, hidden, "head", shard=None, bias=True)
    return (*dense, *parts.linear("classification_head.out_proj", labels, hidden, "head", shard=None, bias=True))


def _encoder_alone(config: Config, hidden: int, encoder: Tower, task: str) -> Model:
    """What diffusion models and sentence embeddings take of a T5: the encoder and its embedding, at most a classifier."""
    return parts.decoder(
        Config({**config.raw, "tie_word_embeddings": True}, config.path),
        hidden=hidden,
        blocks=encoder.blocks,
        embedding="shared.weight",
        norm=(),
        extra=(*encoder.tensors, *_scores(config, hidden, task)),
    )


def _stacked(config: Config, hidden: int, count: int, side: str) -> tuple[Block, ...]:
    """Equal layers; in Switch Transformers some MLPs are mixtures, in equal steps from the second on."""
    sparse = config.integer(f"num_sparse_{side}_layers", default=0) if config.text("model_type") == "switch_transformers" else 0
    step = max(1, config.integer(f"{side}_sparse_step", default=count // sparse if sparse else count))
    mixed = [bool(sparse) and (i % step == 1 or step == 1) for i in range(count)]
    return parts.stack(mixed, lambda routes: _block(config, hidden, side, routes=routes))


def _block(config: Config, hidden: int, side: str, *, routes: bool) -> Block:
    heads, decoder = config.size("num_heads"), side == "decoder"
    kind = Attention(heads=heads, kv_heads=heads, head_dim=config.size("d_kv", default=64), causal=decoder, rope_dim=0)
    across = Attention(heads=heads, kv_heads=heads, head_dim=kind.head_dim, causal=False, rope_dim=0)
    gated = config.text("feed_forward_proj", default="relu").startswith("gated")
    mlp = Dense(intermediate=config.size("d_ff"), gated=gated, activation="gelu_new" if gated else "relu")
    last = 2 if decoder else 1
    own_bias = (_bias(config, "layer.0.SelfAttention."),) if config.text("model_type") == "umt5" else ()
    return Block(
        name=f"{side}.block.{{}}.",
        indices=(),
        mixers=(kind,),
        feedforward=_experts(config) if routes else mlp,
        cross=across if decoder else None,
        tensors=(
            *_attention(kind, hidden, f"layer.0.{_own(config, side)}."),
            *_summary(config, kind, hidden, side),
            *(_attention(across, hidden, "layer.1.EncDecAttention.") if decoder else ()),
            *(_routed(config, hidden, f"layer.{last}.mlp.") if routes else _mlp(mlp, hidden, f"layer.{last}.{_dense(config)}.")),
            *parts.norms(hidden, *(f"layer.{i}.layer_norm" for i in range(last + 1))),
            *own_bias,
        ),
    )


def _is_global(config: Config, side: str) -> bool:
    """LongT5's encoder may also attend to a summary of each block of tokens."""
    kind = config.text("encoder_attention_type", default="local") if config.text("model_type") == "longt5" else ""
    return side == "encoder" and kind == "transient-global"


def _own(config: Config, side: str) -> str:
    """What the attention of a side to itself is called."""
    if config.text("model_type") != "longt5" or side == "decoder":
        return "SelfAttention"
    return "TransientGlobalSelfAttention" if _is_global(config, side) else "LocalSelfAttention"


def _summary(config: Config, kind: Attention, hidden: int, side: str) -> tuple[Tensor, ...]:
    """The norm of those summaries."""
    name = f"layer.0.{_own(config, side)}.global_input_layer_norm"
    return parts.norms(hidden, name) if _is_global(config, side) else ()


def _dense(config: Config) -> str:
    return "mlp" if config.text("model_type") == "switch_transformers" else "DenseReluDense"


def _experts(config: Config) -> Experts:
    return Experts(routed=config.size("num_experts"), active=1, intermediate=config.size("d_ff"), gated=False, activation="relu")


def _routed(config: Config, hidden: int, prefix: str) -> tuple[Tensor, ...]:
    kind, name = _experts(config), f"{prefix}experts.expert_{{}}."
    mlp, bias = Dense(intermediate=kind.intermediate, gated=False), config.flag("router_bias", default=False)
    return (
        *parts.router(kind, hidden, f"{prefix}router.classifier", bias=bias),
        *parts.plain_mlp(mlp, hidden, f"{name}wi", f"{name}wo", role="expert.", copies=kind.routed),
    )


def _attention(kind: Attention, hidden: int, prefix: str) -> tuple[Tensor, ...]:
    width = kind.heads * kind.head_dim
    into = (parts.linear(f"{prefix}{x}", width, hidden, x, shard=0, groups=kind.heads) for x in "qkv")
    return (*(t for each in into for t in each), *parts.output(kind, hidden, f"{prefix}o"))


def _mlp(kind: Dense, hidden: int, prefix: str) -> tuple[Tensor, ...]:
    if kind.gated:
        return parts.gated_mlp(kind, hidden, prefix=prefix, names=("wi_0", "wi_1", "wo"))
    return parts.plain_mlp(kind, hidden, f"{prefix}wi", f"{prefix}wo")


def _first_bias(config: Config, side: str) -> tuple[Tensor, ...]:
    """The relative positions' bias, in the first layer alone (UMT5: in every layer)."""
    if config.text("model_type") == "umt5":
        return ()
    name = f"{side}.block.0.layer.0.{_own(config, side)}."
    distant = _bias(config, name, "global_relative_attention_bias") if _is_global(config, side) else None
    return (_bias(config, name), *((distant,) if distant else ()))


def _bias(config: Config, prefix: str, name: str = "relative_attention_bias") -> Tensor:
    shape = (config.size("relative_attention_num_buckets", default=32), config.size("num_heads"))
    return Tensor(name=f"{prefix}{name}.weight", shape=shape, role="position", shard=1)
