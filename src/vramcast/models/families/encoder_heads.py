"""What stands on an encoder: the pooler, the masked-token head (its matrix is the embedding), a classifier.

Source of names, shapes and which task has which: transformers 5.23, the modeling file of each class.
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import parts
from vramcast.models.inventory import Tensor

_MASKED = ("MaskedLM", "PreTraining", "LMHeadModel", "CausalLM")
_POOLED = ("SequenceClassification", "PreTraining", "MultipleChoice", "NextSentencePrediction")


class Heads(msgspec.Struct, frozen=True, kw_only=True):
    """One class's heads. ``masked`` names the dense layer, its norm and the bias; ``dense`` the layer before the classifier.

    ``pooler`` is the tasks that pool ("Model" for the bare encoder) and ``pooled`` its name; ``transformed``: the masked head
    works in the embedding's width. ``sentence`` scores a pair of sentences in pretraining, "" = no such loss.
    """

    masked: tuple[str, str, str]
    dense: str = ""
    last: str = "classifier"
    pooler: tuple[str, ...] = ("Model", *_POOLED)
    pooled: str = "pooler.dense"
    narrow: bool = False
    sentence: str = ""


BERT = Heads(
    masked=("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"),
    sentence="cls.seq_relationship",
)
ROBERTA = Heads(
    masked=("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"), dense="classifier.dense", last="classifier.out_proj",
    pooler=("Model", "MultipleChoice"),
)  # fmt: skip
DISTIL = Heads(
    masked=("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"), dense="pre_classifier", pooler=(),
)  # fmt: skip
ELECTRA = Heads(
    masked=("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"), narrow=True,
    dense="classifier.dense", last="classifier.out_proj", pooler=("MultipleChoice",), pooled="sequence_summary.summary",
)  # fmt: skip
ALBERT = Heads(
    masked=("predictions.dense", "predictions.LayerNorm", "predictions.bias"), narrow=True, pooled="pooler",
    sentence="sop_classifier.classifier",
)  # fmt: skip
DEBERTA = msgspec.structs.replace(BERT, pooler=("SequenceClassification", "MultipleChoice"), narrow=True, sentence="")
ERNIE = msgspec.structs.replace(BERT)
LAYOUTLM = msgspec.structs.replace(
    BERT, pooler=("Model", "SequenceClassification", "MaskedLM", "TokenClassification", "QuestionAnswering")
)
NOMIC = msgspec.structs.replace(BERT, pooler=("SequenceClassification",), sentence="")
GTE = Heads(masked=("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder.bias"), pooler=("SequenceClassification",))


def is_bare(task: str) -> bool:
    """Whether the class is the encoder alone."""
    return task.endswith("Model") and not task.endswith("LMHeadModel")


def tensors(config: Config, heads: Heads, task: str, *, hidden: int, width: int, name: str) -> tuple[Tensor, ...]:
    """The tensors of that task's head; ``width`` is the embedding's."""
    if heads is ELECTRA and task.endswith("PreTraining"):
        return _discriminator(hidden)
    pools = "Model" in heads.pooler if is_bare(task) else task.endswith(tuple(p for p in heads.pooler if p != "Model"))
    where = "" if heads.pooled.startswith("sequence") else name
    return (
        *(parts.linear(f"{where}{heads.pooled}", hidden, hidden, "head", shard=None, bias=True) if pools else ()),
        *(_masked(config, heads, hidden, width) if task.endswith(_MASKED) and not is_bare(task) else ()),
        *_scored(config, heads, task, hidden),
    )


def _masked(config: Config, heads: Heads, hidden: int, width: int) -> tuple[Tensor, ...]:
    dense, norm, bias = heads.masked
    inner, vocab = width if heads.narrow else hidden, config.size("vocab_size")
    return (
        *parts.linear(dense, inner, hidden, "head", shard=None, bias=True),
        *parts.norms(inner, norm, bias=True),
        Tensor(name=bias, shape=(vocab,), role="bias"),
        *(() if config.flag("tie_word_embeddings", default=True) else _untied(vocab, width, bias)),
    )


def _untied(vocab: int, width: int, bias: str) -> tuple[Tensor, ...]:
    """A matrix of the head's own; where the bias stands outside it, untying leaves a second one within."""
    matrix = Tensor(name="decoder.weight", shape=(vocab, width), role="head", shard=0)
    outside = bias in ("cls.predictions.bias", "lm_head.bias", "predictions.bias")
    return (matrix, Tensor(name="decoder.bias", shape=(vocab,), role="bias")) if outside else (matrix,)


def _scored(config: Config, heads: Heads, task: str, hidden: int) -> tuple[Tensor, ...]:
    """Scores of labels, of the ends of an answer, of a choice or of a pair of sentences."""
    if task.endswith("TokenClassification"):
        return parts.linear("classifier", _labels(config), hidden, "head", shard=None, bias=True)
    if task.endswith("SequenceClassification"):
        first = parts.linear(heads.dense, hidden, hidden, "head", shard=None, bias=True) if heads.dense else ()
        return (*first, *parts.linear(heads.last, _labels(config), hidden, "head", shard=None, bias=True))
    if task.endswith("MultipleChoice"):
        before = parts.linear(heads.dense, hidden, hidden, "head", shard=None, bias=True) if heads is DISTIL else ()
        return (*before, *parts.linear("classifier", 1, hidden, "head", shard=None, bias=True))
    if task.endswith("QuestionAnswering"):
        return parts.linear("qa_outputs", _labels(config), hidden, "head", shard=None, bias=True)
    if heads.sentence and task.endswith(("PreTraining", "NextSentencePrediction")):
        pairs = _labels(config) if heads is ALBERT else 2
        return parts.linear(heads.sentence, pairs, hidden, "head", shard=None, bias=True)
    return ()


def _discriminator(hidden: int) -> tuple[Tensor, ...]:
    """ELECTRA tells replaced tokens from real ones."""
    inner = "discriminator_predictions."
    return (
        *parts.linear(f"{inner}dense", hidden, hidden, "head", shard=None, bias=True),
        *parts.linear(f"{inner}dense_prediction", 1, hidden, "head", shard=None, bias=True),
    )


def _labels(config: Config) -> int:
    named = config.raw.get("id2label")
    return len(named) if isinstance(named, dict) and named else config.size("num_labels", "_num_labels", default=2)
