"""The model buffer of one device, opened by part of the model: elements, their types, bytes."""

from vramcast.ledger import Term
from vramcast.models.inventory import by_identity
from vramcast.serving.engines.llama_cpp.loading import held_tensors
from vramcast.serving.engines.llama_cpp.placement import Placement
from vramcast.serving.engines.llama_cpp.stored import Part

# first match by what the file calls its tensors (gguf constants.py); what none names is attention
_PARTS = (
    ("token_embd", "embedding"), ("per_layer", "embedding"), ("_exps", "experts"), ("ffn_gate_inp", "experts"), ("norm", "norms"),
    ("ffn_", "feed_forward"), ("ssm_", "recurrent"), ("shortconv", "recurrent"), ("time_mix", "recurrent"),
)  # fmt: skip


@by_identity()
def weights_term(parts: tuple[Part, ...], placement: Placement, device: int, *, beside_bytes: int = 0) -> Term:
    """Weights of one device; ``beside_bytes``: a projector's or draft model's file that stands on it too."""
    sums: dict[str, _Sum] = {}
    embedding = "head" if device == placement.layers[-1] != placement.host else "embedding"
    for home, part, size in held_tensors(parts, placement):
        if home == device:
            name = part_of(part.name)
            sums.setdefault(embedding if name == "embedding" and part.layer is None else name, _Sum()).add(part, size)
    terms = [Term(name=name, bytes=found.bytes, why=found.why) for name, found in sums.items()]
    if beside_bytes:
        terms.append(Term(name="beside", bytes=beside_bytes, why="files of the projector and the draft model"))
    return Term.total("weights", terms, why=_placed(placement, device), source="llama.cpp 0c1e57098, src/llama-model.cpp")


def part_of(name: str) -> str:
    """The part of the model that a tensor of a GGUF file is shown under."""
    if name.startswith("output."):
        return "head"
    return next((part for text, part in _PARTS if text in name), "attention")


class _Sum:
    """Bytes of one part and its elements by type."""

    __slots__ = ("bytes", "types")

    def __init__(self) -> None:
        self.bytes = 0
        self.types: dict[str, int] = {}

    def add(self, part: Part, size_bytes: int) -> None:
        self.bytes += size_bytes
        self.types[part.kind] = self.types.get(part.kind, 0) + part.elements

    @property
    def why(self) -> str:
        """``1,234 elements as q4_k + 56 as f32``."""
        return " + ".join(f"{elements:,} elements as {kind}" for kind, elements in self.types.items())


def _placed(placement: Placement, device: int) -> str:
    layers = placement.layers
    here = sum(1 for place in layers[:-1] if place == device)
    head = " and the output" if layers[-1] == device else ""
    return f"{here} of {len(layers) - 1} layers{head}; input embedding on the host; tensors aligned to 128 B"
