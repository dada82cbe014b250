"""Drafts that write a block of tokens at once (DFlash, DSpark, Domino): Qwen3's layers over states of the model they draft for.

Its embedding and head are that model's and not counted. Source of names and shapes: SpecForge,
specforge/modeling/draft/dflash.py, dspark.py and domino.py.
"""

import msgspec

from vramcast.errors import ConfigError
from vramcast.models.config import Config
from vramcast.models.families import llama, parts
from vramcast.models.inventory import Model, Tensor

_NOTE = "a draft: the embedding and the head are those of the model it drafts for"


def read(config: Config) -> Model:
    """A draft, by its architecture."""
    own = config.optional_child("dflash_config") or Config({}, f"{config.path}: dflash_config")
    model = llama.read(Config({**config.raw, "model_type": "qwen3", "tie_word_embeddings": True}, config.path), prefix="")
    hidden, name = model.hidden, config.architecture
    tensors = (
        *parts.linear("fc", hidden, _states(config, own) * hidden, "projector", shard=None),
        *parts.norms(hidden, "hidden_norm", "norm"),
        *(_guessing(own, model) if name.startswith("DSpark") else _following(own, model) if name.startswith("Domino") else ()),
    )
    said = {"family": "block_draft", "wraps": "qwen3", "tied": False, "unmodelled": (*model.unmodelled, _NOTE)}
    return msgspec.structs.replace(model, tensors=tensors, **said)


def _states(config: Config, own: Config) -> int:
    """How many of the other model's layers it reads: those it names, else as many as it has layers."""
    return len(own.list("target_layer_ids", default=[])) or config.size("num_hidden_layers")


def _guessing(own: Config, model: Model) -> tuple[Tensor, ...]:
    """DSpark: a bias by the token before, of low rank, and how sure it is."""
    rank, kind = own.integer("markov_rank", default=0), own.text("markov_head_type", default="vanilla")
    if rank and kind not in _JOINED:
        raise ConfigError(f"{own.path}: markov_head_type is {kind[:40]!r}, expected {', '.join(_JOINED)}")
    sure = own.flag("enable_confidence_head", default=own.number("confidence_head_alpha", default=0) > 0)
    width = model.hidden + (rank if own.flag("confidence_head_with_markov", default=False) else 0)
    return (
        *(_markov(rank, kind, model) if rank else ()),
        *(parts.linear("confidence_head.proj", 1, width, "head", shard=None, bias=True) if sure else ()),
    )


_JOINED = {"vanilla": "", "gated": "gate_proj", "rnn": "joint_proj"}


def _markov(rank: int, kind: str, model: Model) -> tuple[Tensor, ...]:
    gated, hidden = kind == "gated", model.hidden
    rows, columns = (rank, hidden + rank) if gated else (3 * rank, 2 * rank + hidden)
    name = f"markov_head.{_JOINED[kind]}"
    return (
        Tensor(name="markov_head.markov_w1.weight", shape=(model.vocab, rank), role="embedding"),
        *parts.linear("markov_head.markov_w2", model.vocab, rank, "head", shard=None),
        *(parts.linear(name, rows, columns, "mixer", shard=None, bias=True) if _JOINED[kind] else ()),
    )


def _following(own: Config, model: Model) -> tuple[Tensor, ...]:
    """Domino: a recurrent layer over the block's tokens, and two matrices to the vocabulary."""
    width, state, hidden = own.size("emb_dim"), own.size("gru_hidden_dim"), model.hidden
    return (
        Tensor(name="prefix_gru.weight_ih_l0", shape=(3 * state, hidden), role="mixer"),
        Tensor(name="prefix_gru.weight_hh_l0", shape=(3 * state, state), role="mixer"),
        *parts.linear("embed_proj.0", width, hidden + state, "mixer", shard=None),
        *parts.linear("embed_proj.2", model.vocab, width, "head", shard=None),
    )
