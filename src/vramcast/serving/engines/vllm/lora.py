"""LoRA slots: A and B of every linear layer for each slot, allocated at load whether or not an adapter is present."""

from vramcast.ledger import Term
from vramcast.models.classes import model_class
from vramcast.models.inventory import Model, Tensor
from vramcast.models.sharding import cut, share_shape
from vramcast.models.stages import Stage
from vramcast.serving.engines.versions import at
from vramcast.serving.engines.vllm import versions
from vramcast.serving.engines.vllm.settings import Settings

_TARGETS = frozenset({"q", "k", "v", "qkv", "o", "gate", "up", "gate_up", "down"})
DEFAULT_RANK = 16  # vllm/config/lora.py


def slots_term(model: Model, stage: Stage, options: dict[str, object], settings: Settings) -> tuple[Term, ...]:
    """Bytes of all slots: max_loras * rank * (inputs + outputs) of each target (vllm/lora/layers create_lora_weights)."""
    if not options.get("enable_lora"):
        return ()
    slots, rank = int(str(options.get("max_loras") or 1)), int(str(options.get("max_lora_rank") or DEFAULT_RANK))
    width = sum(count * sum(_width(t, settings.tp) for t in block.tensors if _targeted(t)) for block, count in stage.blocks)
    if at(settings.version, versions.EMBEDDING_SLOTS) and model_class(model.family).served.embedding_slots:
        width += (stage.first + stage.last) * (model.vocab + model.hidden)
    why = f"{slots} slot(s) x rank {rank} x {width:,} inputs and outputs x {settings.element:g} B"
    return (Term(name="lora_slots", bytes=round(slots * rank * width * settings.element), why=why, source="vllm/lora/layers"),)


def _targeted(tensor: Tensor) -> bool:
    return tensor.role in _TARGETS and len(tensor.shape) == 2


def _width(tensor: Tensor, tp: int) -> int:
    return sum(share_shape(tensor, cut(tp)))
