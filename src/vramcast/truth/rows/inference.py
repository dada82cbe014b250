"""Rows of measured inference memory: a raw row to a serving question, asked and set beside what was measured.

Rows of GGUF engines are judged by their own module. Only what a user knows before starting becomes part of the question: the
card, its visible memory, the engine, its version and flags; never a figure the run printed.
"""

from typing import Any

from vramcast.errors import VramcastError
from vramcast.models.inventory import Model
from vramcast.models.reading import read_model
from vramcast.serving.engines.base import POOL_ENGINES, Answer, answer_of
from vramcast.truth.bars import family_keys, platform_key
from vramcast.truth.judgement import Judgement, Unexpressed
from vramcast.truth.rows import inference_figures, inference_words
from vramcast.truth.rows.unread import novel, unread_words
from vramcast.workload import Parallel, Serving

Row = dict[str, Any]

_LLAMA_CPP = frozenset({"llama.cpp", "ik_llama.cpp", "ollama", "koboldcpp/llama.cpp"})
_ENGINES = {
    "vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "tensorrt_llm", "transformers": "transformers", "lmdeploy": "lmdeploy",
    "autoawq": "transformers", "exllama": "transformers", "gptq-for-llama": "transformers",
}  # fmt: skip


def judge(row: Row) -> Judgement:
    """The row beside the engine's forecast. Raises Unexpressed with the reason when it cannot be asked."""
    if row["engine"] in _LLAMA_CPP:
        from vramcast.truth.rows import inference_gguf

        return inference_gguf.judge(row)
    question, model = question_of(row)
    try:
        answer = answer_of(question, model=model, card=inference_words.card(row))
    except VramcastError as error:
        raise Unexpressed(str(error)) from error
    figures, fit = inference_figures.pairs(row, answer), _fit(row, answer)
    if not figures and not fit:
        raise Unexpressed("no figure of this row can be forecast from its settings")
    unread = unread_words(_ENGINES[row["engine"]], row["settings"])
    return Judgement(
        id=row["id"],
        keys=_keys(row, model) | novel(unread),
        pairs=figures,
        quality=row.get("quality") or "A",
        unread=unread,
        **fit,
    )


def question_of(row: Row) -> tuple[Serving, Model]:
    """The question a row answers, and the model it is about. Raises Unexpressed when something that decides is not told."""
    engine = _ENGINES.get(row["engine"])
    if engine is None:
        raise Unexpressed(f"no rules for the engine {row['engine']!r}")
    model = _model(row)
    card = inference_words.card(row)
    options = inference_words.options(row, engine)
    question = Serving(
        model=model.id,
        gpu=card.id if card else None,
        gpus=row.get("n_gpus") or 1,
        engine=engine,
        engine_version=inference_words.version(row),
        context=inference_words.context(row, model),
        concurrency=inference_words.count(row["settings"].get("batch_size")),
        prompt=inference_words.prompt(row),
        output=inference_words.output(row),
        dtype=inference_words.dtype(row, model),
        quant=inference_words.quant(row, model),
        kv_dtype=inference_words.kv_dtype(row, model),
        parallel=Parallel(tp=row.get("tp") or 1, pp=row.get("pp") or 1, ep=inference_words.expert_ranks(row, engine)),
        options=options,
    )
    return question, model


def _model(row: Row) -> Model:
    tried = []
    for name in inference_words.model_names(row):
        try:
            return inference_words.with_group(row, read_model(name, offline=True))
        except VramcastError as error:
            tried.append(str(error))
    raise Unexpressed(tried[0] if tried else "no model named")


def _keys(row: Row, model: Model) -> dict[str, str]:
    keys = {
        "engine": row["engine"], "version": row.get("engine_version") or "", "source": row.get("source") or "",
        "kind": "+".join(row.get("kinds") or ()), "quant": row.get("quant_class") or "",
    }  # fmt: skip
    keys |= family_keys(model)
    keys["parallel"] = "+".join(f"{axis}{row[axis]}" for axis in ("tp", "pp") if (row.get(axis) or 1) > 1)
    if _ENGINES[row["engine"]] in POOL_ENGINES:
        keys |= platform_key(inference_words.card(row))
    return {name: value for name, value in keys.items() if value}


def _fit(row: Row, answer: Answer) -> dict[str, str]:
    if "fit" not in row["usable_for"] or "fits" not in row["measured"]:
        return {}
    return {"fit_called": "no" if answer.start_error else "fits", "fit_actual": "ran" if row["measured"]["fits"] else "oom"}
