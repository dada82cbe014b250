"""Gemma 4's assistants, which draft for it: a few layers that read the keys and values of the model they draft for.

Source of names and shapes: transformers 5.23, modeling_gemma4_assistant.py and modeling_gemma4_unified_assistant.py.
"""

from msgspec.structs import replace

from vramcast.models.config import Config
from vramcast.models.families import parts, wrapper
from vramcast.models.families.gemma_shared import DRAFTS
from vramcast.models.inventory import Model, Tensor

_NOTE = "a draft: the keys and values its layers read are those of the model it drafts for"


def read(config: Config) -> Model:
    """An assistant: every layer shares its cache, whatever the config says of how many do."""
    family = config.text("model_type")
    text = wrapper.text_of(config, family.replace("assistant", "text"), "text_config")
    shared = text.integer("num_kv_shared_layers", default=0) or text.size("num_hidden_layers")
    text = Config({**text.raw, "num_kv_shared_layers": shared, DRAFTS: True}, text.path)
    model = wrapper.wrap(config, text, prefix="model.", towers=())
    backbone = config.size("backbone_hidden_size", default=3840 if "unified" in family else 1536)
    tensors = (
        *parts.linear("pre_projection", model.hidden, 2 * backbone, "projector", shard=None),
        *parts.linear("post_projection", backbone, model.hidden, "projector", shard=None),
        *(_clusters(config, model) if config.flag("use_ordered_embeddings", default=False) else ()),
    )
    return replace(model, tensors=(*model.tensors, *tensors), unmodelled=(*model.unmodelled, _NOTE))


def _clusters(config: Config, model: Model) -> tuple[Tensor, ...]:
    """The vocabulary in groups, a score for each; the order of its tokens is stored in eight bytes each."""
    order = Tensor(name="masked_embedding.token_ordering", shape=(model.vocab,), role="position", kind="buffer", dtype="int64")
    scores = parts.linear(
        "masked_embedding.centroids", config.size("num_centroids", default=2048), model.hidden, "head", shard=None
    )
    return (*scores, order)
