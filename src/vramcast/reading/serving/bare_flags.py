"""Flags of an engine that stand without its program: lists under any key, arrays of a script that another file starts.

``vllmArgs: [--max-model-len, "8192"]`` of an operator's own resource, ``SERVE_ARGS=(--tensor-parallel-size 2 ...)`` beside
``MODEL=...``. The engine is the one that alone has most of the flags; flags that several engines have decide nothing.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache

from vramcast.reading.serving.environment import read_environment_file
from vramcast.reading.serving.flags import is_flag, parsed_flags, plain_name, words_of_flags
from vramcast.reading.serving.launch import Launch, LaunchContext
from vramcast.reading.serving.spelling import ALIASES
from vramcast.reading.serving.words import words_of
from vramcast.reading.shell import ShellStart, read_script_text

_ENGINES = ("vllm", "sglang", "llama_cpp")
# Flags that the question has words for, of each engine as its parser spells them, beside the engine's own table.
_OF_QUESTION = {
    "vllm": {"dtype", "quantization", "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size",
             "enable-expert-parallel", "max-model-len", "kv-cache-dtype", "limit-mm-per-prompt", "speculative-config"},
    "sglang": {"dtype", "quantization", "tensor-parallel-size", "tp-size", "tp", "dp-size", "context-length", "kv-cache-dtype",
               "mem-fraction-static", "ep-size"},
    "llama_cpp": {"ctx-size", "n-gpu-layers", "flash-attn", "cache-type-k", "cache-type-v", "n-parallel", "n-batch", "n-ubatch"},
}  # fmt: skip
_FEWEST = 2
_MODELS = ("MODEL", "MODEL_NAME", "MODEL_ID", "MODEL_PATH", "HF_MODEL", "MODEL_REPO", "VLLM_MODEL", "BASE_MODEL")


def engine_of_bare_flags(words: Sequence[str], hint: str = "") -> str:
    """The engine that has more of these flags than any other, by two that not all have; "" where that is not plain.

    ``hint``: words around the flags (a key's name): an engine that they name needs one flag of its own.
    """
    named = [word.partition("=")[0] for word in words if is_flag(word)]
    own = {engine: {plain_name(name, ALIASES[engine]) for name in named} & _names(engine) for engine in _ENGINES}
    shared = set.intersection(*own.values())
    counts = {engine: len(found - shared) for engine, found in own.items()}
    best = max(_ENGINES, key=lambda engine: counts[engine])
    told = [engine for engine in _ENGINES if engine.replace("_", "") in re.sub(r"\W|_", "", hint).lower()]
    if len(told) == 1 and own[told[0]]:
        return told[0]
    rivals = [engine for engine in _ENGINES if engine != best and counts[engine] >= counts[best]]
    return best if counts[best] >= _FEWEST and not rivals else ""


@cache
def _names(engine: str) -> frozenset[str]:
    from vramcast.serving.engines import engine as engine_named

    return frozenset({option.name.replace("_", "-") for option in engine_named(engine).options} | _OF_QUESTION[engine])


def read_arrays(content: str, held: LaunchContext) -> tuple[Launch, ...]:
    """Launches by a script that starts nothing itself but keeps an engine's flags in an array, beside its model."""
    script = read_script_text(content, ShellStart(given=held.variables, source=held.text_of))
    variables = {**read_environment_file(content), **script.variables}  # a file of variables needs no quotes
    found: list[Launch] = []
    for name, words in {**_texts(variables), **script.arrays}.items():
        engine = engine_of_bare_flags(words, name)
        if name in ("@", "*") or not engine:
            continue
        model = _model_of(engine, words, variables)
        if model:
            flags = words_of_flags(flag for flag in parsed_flags(engine, words).flags if flag.name != "model")
            found.append(Launch(engine=engine, model=model, flags=flags, where=held.at(name).where))
    return tuple(found)


def _texts(variables: Mapping[str, str]) -> dict[str, list[str]]:
    """Variables whose value is nothing but flags, as words: ``VLLM_ARGS=--max-model-len 8192 ...``."""
    plain = {name: value for name, value in variables.items() if value.lstrip().startswith("-") and not name.endswith("]")}
    return {name: list(words_of(value)) for name, value in plain.items()}


def _model_of(engine: str, words: Sequence[str], variables: Mapping[str, str]) -> str:
    """The model by the flags, else by the variable that names one."""
    typed = next((flag.values[0] for flag in parsed_flags(engine, words).flags if flag.name == "model" and flag.values), "")
    return typed or next((variables[name] for name in _MODELS if variables.get(name)), "")
