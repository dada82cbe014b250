"""The config.json that a trace is built from: the model's own file, or one derived from its inventory and checked against it.

The bundled catalogue holds inventories, not configs. Those of plain decoders determine a transformers config; whether they did is
checked after the trace, by the number of parameters of what was built.
"""

from pathlib import Path
from typing import Any

from vramcast.errors import UnmodelledError
from vramcast.models.inventory import Block, Model
from vramcast.models.layers import Attention, Dense, Experts
from vramcast.models.sources.strict import read_json


def config_of(model: Model, what: str) -> tuple[dict[str, Any], str]:
    """The config for a model named ``what``, and where it is from.

    Raises UnmodelledError when there is no config at hand and the inventory does not determine one.
    """
    path = _config_file(Path(what).expanduser())
    if path is not None:
        return _read(path), str(path)
    return derived(model), "derived from the model's inventory"


def derived(model: Model) -> dict[str, Any]:
    """A transformers config for a decoder whose layers are all attention with a dense or expert feed-forward."""
    block = _plain_block(model)
    architecture = model.architecture or _by_numbers(model, block)
    if not architecture:
        raise _undetermined(model)
    attention, feedforward = block.mixers[0], block.feedforward
    if not isinstance(attention, Attention):
        raise _undetermined(model)
    config: dict[str, Any] = {
        "architectures": [architecture],
        "hidden_size": model.hidden,
        "vocab_size": model.vocab,
        "num_hidden_layers": model.layers,
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.kv_heads,
        "head_dim": attention.head_dim,
        "tie_word_embeddings": model.tied,
        "max_position_embeddings": model.positions or 8192,
        "pad_token_id": None,
    }
    if isinstance(feedforward, Dense):
        config["intermediate_size"] = feedforward.intermediate
    elif isinstance(feedforward, Experts):
        config |= _expert_fields(feedforward)
    return config


def _by_numbers(model: Model, block: Block) -> str:
    """The class of transformers that a shape given by numbers has; "" where none has its layers."""
    mixer, feedforward = block.mixers[0], block.feedforward
    rotary = isinstance(mixer, Attention) and mixer.rope_dim != 0
    if not model.loaded_from.startswith("numbers") or not rotary:
        return ""
    if isinstance(feedforward, Experts):
        return "MixtralForCausalLM" if len(model.blocks) == 1 and not feedforward.shared_intermediate else ""
    return "LlamaForCausalLM" if isinstance(feedforward, Dense) and feedforward.gated else ""


def check_built(model: Model, parameters: int, source: str) -> None:
    """Refuse a trace whose model has another number of parameters than the inventory says."""
    if parameters and parameters != model.parameters and source.startswith("derived"):
        raise UnmodelledError(
            f"the config derived for {model.id} builds {parameters:,} parameters instead of {model.parameters:,}:"
            " give its own config.json"
        )


def _expert_fields(experts: Experts) -> dict[str, Any]:
    named = {"num_experts": experts.routed, "num_local_experts": experts.routed, "n_routed_experts": experts.routed}
    return {
        **named,
        "num_experts_per_tok": experts.active,
        "moe_intermediate_size": experts.intermediate,
        "intermediate_size": experts.intermediate,
    }


def _plain_block(model: Model) -> Block:
    if model.towers or not model.blocks or any(b.mixers[:1] == () or b.feedforward is None for b in model.blocks):
        raise _undetermined(model)
    return model.blocks[0]


def _undetermined(model: Model) -> UnmodelledError:
    return UnmodelledError(f"{model.id} is more than its catalogue entry can rebuild: trace its own folder or config.json")


def _config_file(path: Path) -> Path | None:
    if path.is_dir() and (path / "config.json").is_file():
        return path / "config.json"
    return path if path.suffix == ".json" and path.is_file() else None


def _read(path: Path) -> dict[str, Any]:
    return read_json(path)
