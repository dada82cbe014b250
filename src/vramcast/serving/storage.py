"""Bytes of a tensor's share on one rank under the weights' precision: the checkpoint's own, an asked one, or a plain type."""

from vramcast.memo import by_identity
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.quantization import Scheme, scheme_for
from vramcast.models.quantization.scheme import stored_bytes
from vramcast.models.sharding import is_routed


class Storage:
    """The storage of one model's tensors as an engine loads them; ``name`` is what to print.

    ``quantizes_mtp``: the checkpoint's own fp8 covers multi-token-prediction layers; tools that quantise what transformers builds
    never see them.
    """

    __slots__ = ("name", "quantizes_mtp", "scheme")

    def __init__(self, model: Model, *, quant: str | None, dtype: str) -> None:
        """``quant`` None keeps the checkpoint's own scheme; ``dtype`` is the type of whatever is not quantised."""
        self.scheme: Scheme = scheme_for(model, quant=quant, dtype=dtype)
        self.name = self.scheme.name
        self.quantizes_mtp = bool(model.quantization) and (model.quantization or {}).get("quant_method") == "fp8"

    def share_bytes(self, tensor: Tensor, elements: int, *, block: Block | None = None, side: bool = False) -> float:
        """Bytes of that many elements of a tensor; the mean over a block's layers when a scheme differs from layer to layer.

        ``side``: the tensor belongs to a tower beside the decoder, which quantisers usually leave alone.
        """
        if side and self._leaves_towers():
            return elements * self.scheme.base.bits / 8
        if self.scheme.plan is None:
            return elements * self.scheme.format_of(tensor, tower=side).bits / 8
        if block is None:
            return stored_bytes(self.scheme.format_of(tensor, tower=side), tensor, elements)
        forms = self.scheme.formats(tensor, prefix=block.name, indices=block.indices, tower=side)
        return sum(stored_bytes(form, tensor, elements) * times for form, times in forms.items()) / block.count

    def expert_format(self, model: Model) -> str:
        """The name of the format that routed experts are stored in, the commonest where it differs; "" without experts."""
        counts: dict[str, int] = {}
        for block in model.blocks:
            for tensor in block.tensors:
                if is_routed(tensor) and len(tensor.shape) > 1:
                    forms = self.scheme.formats(tensor, prefix=block.name, indices=block.indices)
                    counts |= {form.name: counts.get(form.name, 0) + times for form, times in forms.items()}
        return max(counts, key=lambda name: counts[name], default="")

    def _leaves_towers(self) -> bool:
        """ModelOpt and compressed-tensors quantise towers only where their config lists what else to leave alone."""
        plan = self.scheme.plan
        return plan is not None and not plan.ignore and plan.name.startswith(("modelopt", "compressed"))


@by_identity(most=512)
def storage_of(model: Model, *, quant: str | None, dtype: str) -> Storage:
    """The storage of a model under a scheme, made once."""
    return Storage(model, quant=quant, dtype=dtype)
