"""What Ollama decides before it starts llama-server: context by memory, batch by context, its own estimate.

Source: ollama at fb3076099, server/routes.go, llm/llama_server.go, ml/device.go.
"""

from vramcast.errors import UnmodelledError
from vramcast.models.inventory import Model
from vramcast.models.layers import Attention, LatentAttention
from vramcast.quantity import Number, extent
from vramcast.units import GiB

_CONTEXTS = ((47 * GiB, 262_144), (23 * GiB, 32_768), (0, 4096))
_BATCHES = ((32_768, 2048), (4096, 1024), (0, 512))


def default_context(total_bytes: int) -> int:
    """Tokens of context by the GPUs' total memory."""
    return next(tokens for least, tokens in _CONTEXTS if total_bytes >= least)


def batch_tokens(context: Number) -> int:
    """Tokens of a batch by context. Raises UnmodelledError for an array of contexts whose batches differ."""
    shortest, longest = (
        next(tokens for above, tokens in _BATCHES if end is None or end > above or not above) for end in extent(context)
    )
    if shortest != longest:
        raise UnmodelledError("Ollama takes other batches for other contexts: ask for contexts of one batch together")
    return longest


def predicted_bytes(model: Model, file_bytes: int, context: int) -> int:
    """The pre-check: file size + 2 * layers * fewest KV heads * head width * context * 2 B.

    It counts windows at full length and the smallest number of heads for all layers, so that it errs both ways.
    """
    attention = [m for b in model.layer_list() for m in b.mixers if isinstance(m, Attention | LatentAttention)]
    if not attention:
        return file_bytes
    heads = min(m.kv_heads if isinstance(m, Attention) else 1 for m in attention)
    width = attention[0].head_dim
    return file_bytes + 2 * model.layers * heads * width * context * 2
