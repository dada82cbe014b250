"""What stands on a decoder: the language-model head, a score for each label, the ends of an answer, or nothing.

Embedding and reward models are published under their decoder's ``model_type``; only ``architectures`` tells them apart.
Source: transformers 5.23, modeling_layers.py (GenericForSequenceClassification, ...TokenClassification, ...QuestionAnswering).
"""

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import parts
from vramcast.models.families.registry import WHOLE
from vramcast.models.inventory import Model, Tensor

_WITHOUT_BIAS = {"qwen3_asr"}
_WITH_BIAS = {"t5gemma", "t5gemma2"}
_DRAFTS = ("Eagle", "Medusa", "Speculator", "DFlash", "DraftModel")


def headed(model: Model, config: Config) -> Model:
    """The model with the head that its architecture names; unchanged for a language model.

    Raises UnmodelledError for draft models that only borrow a decoder's ``model_type``.
    """
    name = model.architecture
    if any(word in name for word in _DRAFTS) and not name.endswith("VLForConditionalGeneration"):
        raise UnmodelledError(
            f"{config.path}: {name} is a draft model beside {model.family!r}; read its safetensors files instead"
        )
    if name.endswith(("ForSequenceClassification", "ForTokenClassification")):
        usual = name.endswith("ForTokenClassification") and model.family not in _WITHOUT_BIAS
        bias = usual or model.family in _WITH_BIAS
        return _replaced(model, _score(config, model.hidden, bias=bias))
    if name.endswith("ForQuestionAnswering"):
        return _replaced(model, parts.linear("qa_outputs", 2, model.hidden, "head", shard=None, bias=True))
    return _replaced(model, ()) if _is_bare(name) else model


def _is_bare(name: str) -> bool:
    """Whether the class is the body of a language model; a few classes of that form are whole ones."""
    return name.endswith("Model") and not name.endswith(("HeadModel", "RewardModel")) and name not in WHOLE


def _replaced(model: Model, head: tuple[Tensor, ...]) -> Model:
    body = tuple(t for t in model.tensors if t.role != "head" and not t.name.endswith("lm_head.bias"))
    return msgspec.structs.replace(model, tensors=body + head)


def _score(config: Config, hidden: int, *, bias: bool) -> tuple[Tensor, ...]:
    """One score per label: as many as ``id2label`` has, else ``num_labels``, else two."""
    named = config.optional_child("id2label")
    labels = len(named.raw) if named else config.size("num_labels", default=2)
    weight = Tensor(name="score.weight", shape=(labels, hidden), role="head")
    return (weight, Tensor(name="score.bias", shape=(labels,), role="bias")) if bias else (weight,)
