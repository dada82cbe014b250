"""Rows of measured inference memory under llama.cpp, ik_llama.cpp and Ollama: model, cache, state and compute buffers, totals.

A run whose file is a hand-made mix is asked with the size of its file, which its user holds; its model buffers are then not
scored.
"""

import re
from typing import Any

import msgspec

from vramcast.errors import VramcastError
from vramcast.hardware.cards import find_accelerator
from vramcast.hardware.runtime import context_bytes
from vramcast.models.inventory import Model
from vramcast.models.layers import Attention, LatentAttention
from vramcast.serving.engines import engine
from vramcast.serving.engines.llama_cpp.answer import Process, process_of
from vramcast.truth.bars import family_keys
from vramcast.truth.judgement import Judgement, Pair, Unexpressed
from vramcast.truth.rows import gguf_words
from vramcast.truth.rows.unread import novel, unread_words
from vramcast.units import GiB, MiB
from vramcast.workload import Serving

Row = dict[str, Any]

_ENGINES = {"llama.cpp": "llama_cpp", "ik_llama.cpp": "ik_llama_cpp", "ollama": "ollama", "koboldcpp/llama.cpp": "llama_cpp"}
_SAME_FILE = 0.005
"""A file whose size is further than this from its type's mix was mixed by hand."""
_PRINTED = 0.006 * MiB
"""Logs print hundredths of a MiB."""


def judge(row: Row) -> Judgement:
    """The row beside its forecast. Raises Unexpressed with the reason when it cannot be asked."""
    question, model, exact = question_of(row)
    process = _worked(question, model)
    size = row["measured"].get("file_size_gib")
    if exact and size and abs(process.plan.file_bytes / (size * GiB) - 1) > _SAME_FILE:
        exact = False
        sized = question.options | {"file_bytes": round(size * GiB)}
        process = _worked(msgspec.structs.replace(question, options=sized), model)
    pairs = measures_of(row, process, exact=exact)
    if not pairs:
        raise Unexpressed("no figure of this row can be forecast from its settings")
    unread = unread_words(_ENGINES[row["engine"]], row["settings"])
    keys = _keys(row) | family_keys(model) | novel(unread)
    return Judgement(id=row["id"], keys=keys, pairs=pairs, quality=row.get("quality") or "A", unread=unread)


def _worked(question: Serving, model: Model) -> Process:
    try:
        return process_of(engine(question.engine).resolve(question, model, None), question.engine)
    except VramcastError as error:
        raise Unexpressed(str(error)) from error


def _attends(model: Model) -> bool:
    """Whether any layer keeps keys and values, so that the context decides; a state has one size."""
    return any(isinstance(mixer, (Attention, LatentAttention)) for block in model.blocks for mixer in block.mixers)


def question_of(row: Row) -> tuple[Serving, Model, bool]:
    """The question, its model, and whether the file's tensor types are known. Raises Unexpressed."""
    if "ollama engine" in (row.get("engine_version") or ""):
        raise Unexpressed("Ollama's own runner, from before it started llama-server")
    model, settings = gguf_words.model_of(row), row["settings"]
    context = settings.get("n_ctx") or (None if _attends(model) else 512)
    if context is None:
        raise Unexpressed("the context is not told")
    quant, exact, size = _file(row)
    options = _options(row, model)
    if size:
        options["file_bytes"] = size
    question = Serving(
        model=model.id,
        gpus=max(1, row.get("n_gpus") or 1),
        engine=_ENGINES[row["engine"]],
        engine_version=_version(row),
        context=context,
        quant=quant,
        options=options,
    )
    return question, model, exact


def _file(row: Row) -> tuple[str, bool, int | None]:
    size = row["measured"].get("file_size_gib")
    size_bytes = round(size * GiB) if size else None
    try:
        quant, exact = gguf_words.quant_of(row)
    except Unexpressed:
        return "F16", False, size_bytes
    return quant, exact, None if exact else size_bytes


def _version(row: Row) -> str | None:
    if row["engine"].startswith("kobold"):
        return gguf_words.WINTER_BUILD
    if row["engine"] != "llama.cpp":
        return None
    if row.get("engine_version") and row["engine_version"].startswith("b"):
        return str(row["engine_version"]).split()[0]
    archived = "ikawrakow" in (row.get("source") or "") or "ikawrakow" in (row.get("source_path") or "")
    return gguf_words.FORUM_BUILD if archived else None


def _options(row: Row, model: Model) -> dict[str, Any]:
    s = row["settings"]
    keys, values = gguf_words.cache_types(row.get("kv_dtype"))
    options: dict[str, Any] = {
        "cache_type_k": keys,
        "cache_type_v": values,
        "n_parallel": s.get("n_seq_max") or 1,
        "kv_unified": bool(s.get("kv_unified")) or not s.get("n_seq_max") or s["n_seq_max"] == 1,
        "override_tensor": gguf_words.overrides(row) if gguf_words.told(row) else (),
        "n_ubatch": s.get("n_ubatch") or min(512, s.get("n_batch") or 512),
    }
    layers = gguf_words.offloaded(s.get("n_gpu_layers_offloaded"))
    optional = {
        "n_gpu_layers": model.layers + 1 if layers == model.layers + 1 else layers,
        "tensor_split": [float(x) for x in str(s["tensor_split"]).split(",")] if s.get("tensor_split") else None,
        "draft_tokens": s.get("mtp_draft_n_max"),
        "split_mode": s.get("split_mode"),
        "run_time_repack": s.get("run_time_repack"),
        "devices": "vulkan" if "vulkan" in f"{row.get('gpu')} {row.get('engine_version')}".lower() else None,
        "flash_attn": gguf_words.flag(s["flash_attn"]) if "flash_attn" in s else None,
    }
    if row["engine"] == "ik_llama.cpp":
        latent = 1 if "c_kv" in (row.get("kv_dtype") or "") else 0
        optional |= {"mla": int(s.get("mla") or latent) or latent, "attn_max_batch": int(s.get("attn_max_batch_mib") or 0)}
        optional |= {"fused_moe": gguf_words.flag(s.get("fused_moe")), "latent_layout": _layout(row)}
    return options | {name: value for name, value in optional.items() if value is not None}


def _layout(row: Row) -> str | None:
    """671.026 B parameters are stored without, 672.050 B with the halves of the up-projection beside the whole."""
    text = row["measured"].get("params_b_log") or ""
    return {"671.026": "whole", "672.050": "both"}.get(text.split()[0] if text else "")


def measures_of(row: Row, process: Process, *, exact: bool) -> tuple[Pair, ...]:
    """Each measured figure beside its forecast.

    On a card that shares the host's memory a process's growth holds its pinned compute buffer and its context too.
    """
    m, plan, pairs = row["measured"], process.plan, list[Pair]()
    untold = not gguf_words.told(row) or _beyond(row, process)
    if m.get("kv_total_mib"):
        pairs.append(_pair("kv_buffer", sum(plan.cache), m["kv_total_mib"]))
    if m.get("recurrent_state_mib"):
        pairs.append(_pair("state", sum(plan.state), m["recurrent_state_mib"]))
    if exact and not untold:
        pairs += _per_device("model_buffer", m, process)
    if not untold and (exact or not _moves_unknown(row, process)):
        pairs += _per_device("compute_buffer", m, process)
    total = m.get("total_vram_mib") or m.get("gpu_mem_after_load_delta_mib")
    if total:
        pairs.append(_pair("total", plan.device(0), total))
    if m.get("gtt_peak_mib") and not untold:
        shared = plan.device(0) + plan.compute[-1] + context_bytes(None)
        pairs.append(_pair("total", shared, m["gpu_mem_delta_mib"]))
    return tuple(pairs)


def _per_device(measure: str, measured: dict[str, Any], process: Process) -> list[Pair]:
    """One figure per GPU; the sum of weights when the split followed memory that was free then."""
    printed = sorted((measured.get(f"{measure}_mib") or {}).items(), key=_number)
    figures = process.plan.weights if measure == "model_buffer" else process.plan.compute
    gpus = process.settings.placement.gpus
    if not printed or len(printed) > gpus or any(host in name for name, _ in printed for host in ("HTP", "AMX")):
        return []
    if measure == "model_buffer" and len(printed) > 1:
        return [_pair(measure, sum(figures[:gpus]), sum(value for _, value in printed), at="all GPUs")]
    return [_pair(measure, figures[i], value, at=device) for i, (device, value) in enumerate(printed)]


def _beyond(row: Row, process: Process) -> bool:
    """Whether the weights do not fit the cards as told: the overrides are then missing from the report."""
    names = [part.strip() for part in row["gpu"].split(",")]
    try:
        cards = [find_accelerator(re.sub(r"\s*\d+ ?GB.*|\(.*", "", name).strip()) for name in names]
    except VramcastError:
        return False
    gpus = process.settings.placement.gpus
    rooms = [card.visible_bytes for card in cards] * (gpus if len(cards) == 1 else 1)
    return sum(process.plan.weights[:gpus]) > sum(rooms[:gpus])


def _moves_unknown(row: Row, process: Process) -> bool:
    """Whether experts of unknown type travel to the GPU: their copies are then most of the compute buffer."""
    named = "_R4" in (row.get("quant") or "") or re.search(r"IQ\d_K", row.get("quant") or "")
    return bool(process.settings.overridden and not named)


def _pair(measure: str, predicted: float, mib: float, *, at: str = "") -> Pair:
    return Pair(measure=measure, predicted=predicted, measured=mib * MiB, at=at, slack=_PRINTED)


def _number(item: tuple[str, float]) -> tuple[int, str]:
    digits = "".join(c for c in item[0] if c.isdigit())
    return (int(digits or 0), item[0])


def _keys(row: Row) -> dict[str, str]:
    keys = {
        "engine": row["engine"], "version": row.get("engine_version") or "", "source": row.get("source") or "",
        "kind": "+".join(row.get("kinds") or ()), "quant": row.get("quant_class") or "",
    }  # fmt: skip
    return {name: value for name, value in keys.items() if value}
