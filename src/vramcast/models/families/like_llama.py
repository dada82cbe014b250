"""A ``model_type`` that nothing here knows, read as a Llama when its config has all of Llama's fields and none of another kind.

Many published classes are Llama under a name of their own. What such a class may add to it, biases and norms, is bounded and
said; a config that hints at experts, states, latents, towers or windows is refused.
"""

import re

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.ledger import Assumption
from vramcast.models.config import Config
from vramcast.models.families import llama
from vramcast.models.inventory import Model

_NEEDED = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_FOREIGN = re.compile(
    r"expert|moe|lora|mamba|ssm|conv|linear_(?!bias)|vision|visual|image|audio|_config$|cross|mixer|state|recurrent|latent|mtp|"
    r"nextn|parallel|per_layer|block_|groups|alibi|multi_query|layer_types|num_labels|share|memory|adapter"
)
_HARMLESS = {"quantization_config", "rope_parameters", "pretraining_tp", "use_parallel_embedding"}


def resembles(config: Config) -> bool:
    """Whether the config is that of a plain decoder in Llama's words."""
    architecture = str((config.list("architectures", default=[]) or ["ForCausalLM"])[0])
    foreign = [name for name, value in config.raw.items() if value not in (None, False, 0, [], {}) and _FOREIGN.search(name)]
    plain = set(foreign) <= _HARMLESS and architecture.endswith(("ForCausalLM", "LMHeadModel"))
    return plain and all(config.has(name) for name in _NEEDED)


def read(config: Config, refused: UnmodelledError) -> Model:
    """The model as a Llama, saying so. Raises ``refused`` when the config is not like one."""
    kind = config.text("model_type", default="")
    if not kind or not resembles(config):
        raise refused
    model = llama.read(Config({**config.raw, "model_type": "llama"}, config.path))
    extra = _bound(model)
    share = 100 * extra / model.parameters
    because = f"model_type {kind[:80]!r} has no family here and its config has Llama's fields alone"
    return msgspec.structs.replace(
        model,
        family=kind,
        trust="assumed",
        assumed=(*model.assumed, Assumption(name="family", value="llama", because=because)),
        unmodelled=(
            *model.unmodelled,
            f"what {kind[:80]!r} adds to a Llama: biases and norms would be at most {extra:,} parameters ({share:.2g} %); "
            "its safetensors files, or transformers with the [torch] extra, would be exact",
        ),
    )


def _bound(model: Model) -> int:
    """Biases on every matrix, two more norms, and norms as wide as queries and keys, in every layer."""
    per_layer = sum(t.shape[0] for block in model.blocks[:1] for t in block.tensors if len(t.shape) == 2) + 4 * model.hidden
    return per_layer * model.layers + model.hidden
