"""The command line that starts a server of a question, in its engine's own flags. Reading it back asks the same question.

Flags: vllm/engine/arg_utils.py, sglang/srt/server_args.py, tensorrt_llm/commands/serve.py, llama.cpp common/arg.cpp.
"""

import json
import shlex
from collections.abc import Iterator
from typing import Any

import msgspec

from vramcast.errors import UnmodelledError, VramcastError
from vramcast.workload import Serving


class Spelling(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine writes our words. ``program``: the words before the model; ``underscores``: within flags."""

    program: tuple[str, ...]
    context: str
    tp: str
    pp: str = ""
    dp: str = ""
    ep: str = ""
    quant: str = ""
    kv_dtype: str = ""
    dtype: str = ""
    underscores: bool = False


SPELLINGS = {
    "vllm": Spelling(
        program=("vllm", "serve"), context="--max-model-len", tp="--tensor-parallel-size", pp="--pipeline-parallel-size",
        dp="--data-parallel-size", ep="--enable-expert-parallel", quant="--quantization", kv_dtype="--kv-cache-dtype",
        dtype="--dtype",
    ),
    "sglang": Spelling(
        program=("python", "-m", "sglang.launch_server", "--model-path"), context="--context-length", tp="--tp-size",
        pp="--pp-size", dp="--dp-size", ep="--ep-size", quant="--quantization", kv_dtype="--kv-cache-dtype", dtype="--dtype",
    ),
    "tensorrt_llm": Spelling(
        program=("trtllm-serve", "serve"), context="--max_seq_len", tp="--tp_size", pp="--pp_size", ep="--ep_size",
        kv_dtype="--kv_cache_dtype", underscores=True,
    ),
    "llama_cpp": Spelling(program=("llama-server", "-m"), context="-c", tp=""),
}  # fmt: skip
_WIDEST = 100
# Types of the cache as each engine spells them where it differs from ours.
_CACHE = {"sglang": {"fp8": "fp8_e4m3"}}


def words_of(question: Serving) -> tuple[str, ...]:
    """The words of the line. Raises UnmodelledError for an engine whose line is not known."""
    spelling = SPELLINGS.get(question.engine)
    if spelling is None:
        raise UnmodelledError(f"no line is known that starts {question.engine}: {', '.join(SPELLINGS)} have one")
    if question.engine == "llama_cpp":
        return (*spelling.program, _file(question), *_llama_cpp(question))
    return (*spelling.program, question.model, *_flags(question, spelling), *_options(question, spelling))


def command_of(question: Serving, *, replicas: int = 1, width: int = _WIDEST) -> list[str]:
    """The line as it is typed, cut with backslashes between flags; of several replicas each is one such server."""
    lines = _broken(pairs(words_of(question)), max(40, width))
    return [f"# {replicas} servers like this behind a load balancer", *lines] if replicas > 1 else lines


def pairs(words: tuple[str, ...]) -> list[str]:
    """Flags with their values, quoted for a shell; what stands before the first flag is one piece."""
    found: list[str] = []
    for word in words:
        quoted = shlex.quote(word)
        starts = word.startswith("-") and not word[1:2].isdigit()
        if found and (not starts or (len(found) == 1 and found[0] in ("python",))):
            found[-1] += f" {quoted}"
        else:
            found.append(quoted)
    return found


def _broken(pieces: list[str], width: int) -> list[str]:
    lines: list[str] = []
    for piece in pieces:
        if lines and len(lines[-1]) + len(piece) + 3 <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(piece if not lines else f"  {piece}")
    return [line + " \\" for line in lines[:-1]] + lines[-1:]


def _flags(question: Serving, spelling: Spelling) -> Iterator[str]:
    if question.context is not None:
        yield from (spelling.context, str(question.context))
    layout = question.parallel
    for name in ("tp", "pp", "dp"):
        flag, count = getattr(spelling, name), getattr(layout, name)
        if count > 1:
            if not flag:
                raise UnmodelledError(f"{question.engine} has no flag for {name} {count}")
            yield from (flag, str(count))
    if layout.ep > 1:
        yield from (spelling.ep,) if question.engine == "vllm" else (spelling.ep, str(layout.ep))
    for name in ("quant", "kv_dtype", "dtype"):
        value = getattr(question, name)
        if value is not None:
            own = _CACHE.get(question.engine, {}).get(value, value) if name == "kv_dtype" else value
            yield from (getattr(spelling, name), str(own))


# Our options that an engine's line says in another word, as its own parser has it (benchmarks/emitted).
_OWN_NAMES = {
    "sglang": {"num_speculative_tokens": "speculative_num_draft_tokens", "mamba_ssm_dtype": "mamba_ssm_dtype"},
}  # fmt: skip
# Options that no flag of the engine says: what its environment sets, and what only a question of ours has.
_NO_FLAG = ("engine_core", "entry", "gpu_total_bytes", "expandable_segments", "flashinfer_sampler", "swap_space",
            "file_bytes", "tensor_types", "mmproj_bytes", "draft_model_bytes", "pipeline_copies", "latent_layout", "devices",
            "free_gpu_bytes")  # fmt: skip
# SGLang drafts only where the way is named; NEXTN is its word for the model's own layers (sglang/srt/server_args.py).
_NEXTN = "--speculative-algorithm NEXTN --speculative-num-steps {} --speculative-eagle-topk 1"
_DRAFT = {"speculative_method": "method", "speculative_model": "model", "num_speculative_tokens": "num_speculative_tokens"}


def _options(question: Serving, spelling: Spelling) -> Iterator[str]:
    engine = question.engine
    draft = {word: question.options[name] for name, word in _DRAFT.items() if engine == "vllm" and name in question.options}
    if draft:
        yield from ("--speculative-config", json.dumps(draft))
    steps = question.options.get("num_speculative_tokens") if engine == "sglang" else None
    if steps and _drafts_by_own_layers(question):
        yield from _NEXTN.format(steps).split()
    for name, value in question.options.items():
        _refuse_without_flag(engine, name)
        if (draft and name in _DRAFT) or (steps and name == "speculative_algorithm" and _drafts_by_own_layers(question)):
            continue
        own = _OWN_NAMES.get(engine, {}).get(name, name)
        if engine == "sglang" and name == "enable_expert_parallel":
            yield from ("--ep-size", str(question.parallel.tp)) if value else ()
            continue
        flag = f"--{own}" if spelling.underscores else f"--{own.replace('_', '-')}"
        if value is True:
            yield flag
        elif value is False:
            yield from () if engine == "sglang" else (f"--no-{own.replace('_', '-')}",)  # its switches are off by themselves
        elif value is not None:
            checked = 1 if own == "speculative_num_draft_tokens" else 0  # SGLang counts the token that is checked, too
            yield from (flag, _text(value + checked if checked else value))


def _drafts_by_own_layers(question: Serving) -> bool:
    """Whether SGLang's draft is the checkpoint's own: no other way is named, and it has layers for one."""
    named = str(question.options.get("speculative_algorithm") or "NEXTN").upper()
    own = named == "NEXTN" and not question.options.get("speculative_draft_model_path")
    return own and _has_draft_layers(question.model)


def _has_draft_layers(name: str) -> bool:
    from vramcast.models.reading import read_model

    try:
        return any(tower.kind == "mtp" for tower in read_model(name).towers)
    except VramcastError:
        return False


def _refuse_without_flag(engine: str, name: str) -> None:
    if name in _NO_FLAG:
        raise UnmodelledError(f"{engine} has no flag for {name}: it is no part of a command line")


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(str(v) for v in value)
    return str(value)


def _file(question: Serving) -> str:
    """The GGUF file as its publishers name it: the model's name and the type."""
    name = question.model.rpartition("/")[2]
    return name if name.lower().endswith(".gguf") else f"{name}-{question.quant or 'F16'}.gguf"


# llama-server's short flags of the options that plans set.
_SHORT = {"kv_unified": "-kvu", "fit_target_mib": "-fitt", "fit_context": "-fitc", "draft_tokens": "--draft-max",
          "tensor_split": "-ts", "override_tensor": "-ot", "attn_max_batch": "-amb", "fused_moe": "-fmoe", "mla": "-mla",
          "run_time_repack": "-rtr", "n_gpu_layers": "-ngl",
          "n_batch": "-b", "n_ubatch": "-ub", "n_parallel": "-np", "cache_type_k": "-ctk",
          "cache_type_v": "-ctv", "split_mode": "-sm", "cpu_moe": "-cmoe", "n_cpu_moe": "-ncmoe"}  # fmt: skip


def _llama_cpp(question: Serving) -> Iterator[str]:
    if question.context is not None:
        yield from ("-c", str(question.context))
    if question.kv_dtype:
        yield from ("-ctk", question.kv_dtype, "-ctv", question.kv_dtype)
    for name, value in question.options.items():
        _refuse_without_flag(question.engine, name)
        flag = _SHORT.get(name, f"--{name.replace('_', '-')}")
        if name in ("flash_attn", "fit") and value is not None:
            yield from (flag, "on" if value else "off")
        elif value is True:
            yield flag
        elif value not in (None, False):
            yield from (flag, _text(value))
