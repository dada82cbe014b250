"""Load logs of llama.cpp and ik_llama.cpp: the printed metadata and types become the model, the printed buffers are measured.

A log does not show the command line. What it leaves open is taken as its threads used it, and only where it must be: experts
stay on the host when the file is far beyond what the GPUs it names can hold; latent modes 2 and 3 run with ``-amb 512``, experts
fused. Compute buffers that hang on more than that (copies over a pipeline, expansion on the CPU) are not scored.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from vramcast.errors import VramcastError
from vramcast.models.families.gguf import read_metadata
from vramcast.models.inventory import Model
from vramcast.serving.engines import engine
from vramcast.serving.engines.llama_cpp.answer import Process, process_of
from vramcast.serving.engines.llama_cpp.file_types import file_type
from vramcast.serving.engines.llama_cpp.tensors import tensors_of
from vramcast.truth.bars import family_keys
from vramcast.truth.judgement import Judgement, Pair, Unexpressed
from vramcast.truth.rows import gguf_words
from vramcast.units import GiB, MiB
from vramcast.workload import Serving

Row = dict[str, Any]

_VOCABULARY = {
    "qwen3moe": 151_936,
    "qwen3": 151_936,
    "qwen2": 151_936,
    "gemma3": 262_144,
    "glm4": 151_552,
    "chatglm": 151_552,
    "llama": 32_000,
}
"""Tokens of the architectures whose headers leave the number to the tokenizer's list, which logs do not print."""
_TIED = ("gemma", "gemma2", "gemma3")
_LARGEST_GPU = 48 * GiB
"""A file beyond this per GPU named in the log has its experts on the host."""
_LIMIT_MIB = 512
_PRINTED = 0.006 * MiB


def judge(row: Row) -> Judgement:
    """The log beside its forecast. Raises Unexpressed with the reason when it cannot be asked."""
    from vramcast.truth.rows import row_id

    question, model = question_of(row)
    process, exact = _worked(question, model)
    unknown = () if exact else ("weights", "compute_buffer") if process.settings.overridden else ("weights",)
    pairs = tuple(p for p in measures_of(row, process) if p.measure not in unknown)
    if not pairs:
        raise Unexpressed("the log shows no buffers")
    keys = {"engine": question.engine, "source": f"{row['source_repo']}/{row['source_path']}", "kind": str(row.get("arch"))}
    keys |= {"quant": str(row.get("ftype"))} | family_keys(model)
    return Judgement(id=row_id(row), keys=keys, pairs=pairs)


def _worked(question: Serving, model: Model) -> tuple[Process, bool]:
    """The plan, with the printed tensor types when they can be placed; else with the file's size alone."""
    whole = question.options.get("file_bytes")
    loose = {k: v for k, v in question.options.items() if k != "tensor_types"}
    for options in (question.options, loose if whole else question.options):
        asked = msgspec.structs.replace(question, options=options)
        try:
            return process_of(engine(asked.engine).resolve(asked, model, None), asked.engine), options is question.options
        except VramcastError as error:
            reason = error
    raise Unexpressed(str(reason)) from reason


def question_of(row: Row) -> tuple[Serving, Model]:
    """The question a log answers. Raises Unexpressed when something that decides is not in it."""
    if not row.get("kv"):
        raise Unexpressed("the log was cut before the metadata")
    fork = row.get("mla_attn") is not None
    model = _model(row)
    keys, values = gguf_words.printed_cache_types(row.get("kv_self") or "")
    gpus = len({device for device, _, _ in _first_run(row) if _is_gpu(device)})
    options: dict[str, Any] = {
        "n_ubatch": int(row.get("n_ubatch") or 512),
        "n_parallel": 1,
        "cache_type_k": keys,
        "cache_type_v": values,
        "flash_attn": row.get("flash_attn") == "1",
        "latent_layout": _layout(row, model),
        "tensor_types": row.get("tensor_types"),
        "file_bytes": round(_file_bytes(row)),
        "devices": "cuda" if gpus else "none",
    }
    if _nothing_offloaded(row):
        options["n_gpu_layers"] = 0
    if fork:
        mode = int(row["mla_attn"]) or int(_stores_latent(row))
        options |= {"mla": mode, "attn_max_batch": _LIMIT_MIB if mode > 1 else 0, "fused_moe": True}
    if _file_bytes(row) > _LARGEST_GPU * max(1, gpus):
        options["cpu_moe"] = True
    options |= _completed(row)
    expanded = row.get("arch") == "deepseek2" and ", V (" in (row.get("kv_self") or "") and not _stores_latent(row)
    early = gguf_words.EXPANDED_BUILD if expanded else gguf_words.FORUM_BUILD
    name, version = ("ik_llama_cpp", None) if fork else ("llama_cpp", early)
    context = int(row.get("n_ctx") or 512)
    return Serving(
        model=model.id,
        gpus=max(1, gpus),
        engine=name,
        engine_version=version,
        context=context,
        quant=_quant(row),
        options=options,
    ), model


def _completed(row: Row) -> dict[str, Any]:
    """Flags of the command line that stands above the log in its source."""
    told = row.get("settings") or {}
    flags: dict[str, Any] = {"run_time_repack": True} if told.get("run_time_repack") else {}
    return flags | ({"override_tensor": gguf_words.overrides(row), "cpu_moe": False} if told.get("override_tensor") else {})


def _model(row: Row) -> Model:
    arch = str(row.get("arch"))
    told = f"{arch}.vocab_size" in row["kv"]
    try:
        return read_metadata(row["kv"], vocab=None if told else _VOCABULARY.get(arch), tied=True if arch in _TIED else None)
    except VramcastError as error:
        raise Unexpressed(str(error)) from error


def _nothing_offloaded(row: Row) -> bool:
    """Whether every cache in the log is in host memory."""
    caches = [device for device, kind, _ in _first_run(row) if kind == "KV"]
    return bool(caches) and not any(_is_gpu(device) for device in caches)


def _quant(row: Row) -> str:
    try:
        return file_type(row.get("ftype") or "")
    except VramcastError:
        return "F16"


def _layout(row: Row, model: Model) -> str:
    """The layout of latent attention whose tensors are as many as the log counts."""
    count = row.get("n_tensors") or sum((row.get("tensor_types") or {}).values())
    return next((layout for layout in ("split", "whole", "both") if len(tensors_of(model, latent=layout)) == count), "split")


def _file_bytes(row: Row) -> float:
    found = re.match(r"([\d.]+) (GiB|MiB)", row.get("size") or "")
    return float(found[1]) * (GiB if found[2] == "GiB" else MiB) if found else 0


def _is_gpu(device: str) -> bool:
    return re.fullmatch(r"(CUDA|SYCL|Vulkan|ROCm|NAVI)\d+\)?", device) is not None


def _first_run(row: Row) -> Iterator[tuple[str, str, float]]:
    """The buffers of the first load in a log that may show several."""
    seen: set[tuple[str, str]] = set()
    for device, kind, value in row.get("buffers_MiB") or ():
        if (device, kind) in seen and kind in ("output", "compute"):
            return
        seen.add((device, kind))
        yield device, kind, value


def measures_of(row: Row, process: Process) -> Iterator[Pair]:
    """Each printed figure of the first load beside its forecast."""
    plan, buffers = process.plan, list(_first_run(row))
    printed = (row.get("kv_self") or "").replace(",", ".").split(" MiB")[0]
    if re.fullmatch(r"\d+\.\d+", printed):
        yield _pair("kv_buffer", sum(plan.cache), float(printed))
    if _file_bytes(row) and row.get("tensor_types"):
        yield Pair(measure="weights", predicted=plan.file_bytes, measured=_file_bytes(row), slack=0.006 * GiB)
    gpus = [(device, value) for device, kind, value in buffers if kind == "compute" and _is_gpu(device)]
    if not _told(process, len(gpus)):
        return
    for device, value in gpus:
        yield _pair("compute_buffer", plan.compute[_index(device)], value, at=device)
    if not gpus:
        yield from (_pair("compute_buffer", plan.compute[-1], v, at=d) for d, kind, v in buffers if kind == "compute" and v)


def _stores_latent(row: Row) -> bool:
    """Whether the file was converted for a latent cache, which it then has whatever mode the log prints."""
    return any(key.endswith(".attention.key_length_mla") for key in row["kv"])


def _told(process: Process, gpus: int) -> bool:
    """Whether the log holds what its compute buffers hang on."""
    settings = process.settings
    expands = settings.latent_mode > 1 and settings.flash
    piped = settings.generation.fork and gpus > 1 and not settings.overridden
    idle = gpus > 0 and all(place == settings.placement.host for place in settings.placement.layers)
    return not (piped or idle or (expands and (not gpus or gpus > 2)))


def _index(device: str) -> int:
    return int(re.sub(r"\D", "", device) or 0)


def _pair(measure: str, predicted: float, mib: float, *, at: str = "") -> Pair:
    return Pair(measure=measure, predicted=predicted, measured=mib * MiB, at=at, slack=_PRINTED)
