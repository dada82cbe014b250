"""Draft heads read on their own: EAGLE 1 and 3 (one decoder layer over the target's states) and Medusa (a few layers per head).

What they share with the target they are served beside (its embedding, and but for EAGLE 3 its head) is not counted.
Source of names and shapes: vllm/model_executor/models/llama_eagle.py, llama_eagle3.py and medusa.py; arXiv 2401.15077, 2503.01840
and 2401.10774.
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import llama, parts
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Attention, Dense, Experts, LatentAttention

_AUXILIARY = 3
DRAFT_VOCABULARY = 32_000
"""Rows of an EAGLE 3 head: the target's most frequent tokens (draft_vocab_size of SafeAILab/EAGLE's and SpecForge's configs)."""
_HEAD_DIM = 128


def fits(target: Model) -> bool:
    """Whether a head of the target's shape can be told: it decodes text by layers that attend."""
    return bool(_attention(target)) and bool(_width(target))


def head_for(target: Model, *, third: bool) -> Model:
    """An EAGLE head of the target's shape: a plain decoder layer with its heads, as wide as what a token passes in a layer.

    ``third``: EAGLE 3, with a vocabulary of its own; else the first kind, with the target's. A target of latent attention has
    heads of 128 in its head's layer, as published ones have (SpecForge configs of DeepSeek's family).
    """
    mixer = _attention(target)[0]
    kv_heads, head_dim = (mixer.kv_heads, mixer.head_dim) if isinstance(mixer, Attention) else (mixer.heads, _HEAD_DIM)
    fields = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLMEagle3" if third else "LlamaForCausalLMEagle"],
        "hidden_size": target.hidden,
        "intermediate_size": _width(target),
        "num_hidden_layers": 1,
        "num_attention_heads": mixer.heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": target.vocab,
        "torch_dtype": "bfloat16" if target.dtype not in ("float16", "float32") else target.dtype,
    }
    if third:
        fields["draft_vocab_size"] = min(DRAFT_VOCABULARY, target.vocab)
    model = read(Config(fields, f"a head for {target.id}"))
    return msgspec.structs.replace(model, id=f"an EAGLE head for {target.id}")


def _attention(target: Model) -> list[Attention | LatentAttention]:
    mixers = [mixer for block in target.blocks for mixer in block.mixers]
    return [m for m in mixers if isinstance(m, Attention | LatentAttention) and getattr(m, "causal", True)]


def _width(target: Model) -> int:
    """Of a dense layer, or of the experts that a token passes where all layers are routed; 0 where neither is known."""
    kinds = [block.feedforward for block in target.blocks]
    dense = [kind.intermediate for kind in kinds if isinstance(kind, Dense)]
    return max(dense or [kind.active * kind.intermediate for kind in kinds if isinstance(kind, Experts)], default=0)


def read(config: Config) -> Model:
    """A draft head, by its architecture."""
    if config.text("model_type", default="") == "medusa":
        return _medusa(config)
    name = config.architecture
    return _third(config) if "3" in name else _first(config)


def _plain(config: Config, **fields: object) -> Model:
    return llama.read(
        Config({**config.raw, "model_type": "llama", "tie_word_embeddings": False, **fields}, config.path), prefix=""
    )


def _first(config: Config) -> Model:
    """EAGLE 1: the embedding is stored, the first layer does not normalise its input, nothing normalises its output."""
    model, hidden = _plain(config), config.size("hidden_size")
    blocks = tuple(_without(block, "input_layernorm.weight") for block in model.blocks)
    joining = parts.linear(
        "fc", hidden, 2 * hidden, "projector", shard=None, bias=config.flag("bias", "eagle_fc_bias", default=True)
    )
    kept = tuple(t for t in model.tensors if t.role == "embedding")
    return _draft(model, blocks, (*kept, *joining), "the output head is the target's")


def _third(config: Config) -> Model:
    """EAGLE 3: states of three of the target's layers are joined; its layer reads them and the embedding; a head of its own."""
    config = _unnested(config)
    hidden = config.size("hidden_size")
    states = len(config.list("eagle_aux_hidden_state_layer_ids", default=[])) or _AUXILIARY
    model = _plain(config, vocab_size=config.size("draft_vocab_size", "vocab_size"))
    joining = parts.linear("fc", hidden, states * config.size("target_hidden_size", default=hidden), "projector", shard=None)
    blocks = tuple(_wider(block, hidden) for block in model.blocks)
    kept = tuple(t for t in model.tensors if t.role != "embedding")
    return _draft(model, blocks, (*kept, *joining), "the embedding is the target's")


def _unnested(config: Config) -> Config:
    """Speculators' files keep the layer's own sizes apart (speculators/models/eagle3/config.py)."""
    layer = config.optional_child("transformer_layer_config")
    return Config({**layer.raw, **{k: v for k, v in config.raw.items() if v is not None}}, config.path) if layer else config


def _without(block: Block, name: str) -> Block:
    return msgspec.structs.replace(block, tensors=tuple(t for t in block.tensors if t.name != name))


def _wider(block: Block, hidden: int) -> Block:
    """Queries, keys and values of the embedding and the state side by side, the state normalised on its own."""
    widened = tuple(
        msgspec.structs.replace(t, shape=(t.shape[0], 2 * hidden)) if t.role in ("q", "k", "v") else t for t in block.tensors
    )
    return msgspec.structs.replace(block, tensors=(*widened, *parts.norms(hidden, "hidden_norm")))


def _draft(model: Model, blocks: tuple[Block, ...], tensors: tuple[Tensor, ...], shared: str) -> Model:
    notes = (*model.unmodelled, f"a draft head: {shared}")
    own = {"family": "eagle", "wraps": model.text_class, "unmodelled": notes}
    return msgspec.structs.replace(model, blocks=blocks, tensors=tensors, **own)


def _medusa(config: Config) -> Model:
    """Each head: residual layers as wide as the model, then a head of its own over the vocabulary (or its most frequent part)."""
    hidden, heads = config.size("hidden_size"), config.size("num_heads", "medusa_num_heads")
    vocab = config.size("truncated_vocab_size", "vocab_size")
    inner = range(config.size("num_hidden_layers", "medusa_num_layers", default=1))
    bias = config.flag("medusa_fc_bias", default=False)
    block = Block(
        name="blocks.{}.",
        indices=tuple(range(heads)),
        feedforward=Dense(intermediate=hidden, gated=False),
        tensors=(
            *(t for i in inner for t in parts.linear(f"layers.{i}", hidden, hidden, "mixer", shard=0, bias=bias)),
            Tensor(name="lm_head.weight", shape=(vocab, hidden), role="head", shard=0),
        ),
    )
    return Model(
        id="",
        family="medusa",
        hidden=hidden,
        vocab=vocab,
        blocks=(block,),
        tensors=(),
        dtype=parts.dtype_of(config),
        unmodelled=("a draft head: the embedding is the target's",),
    )
