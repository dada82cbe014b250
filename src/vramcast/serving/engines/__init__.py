"""Serving engines by name, each imported only when it is asked for."""

import importlib

from vramcast.errors import unknown_name
from vramcast.serving.engines.base import Engine

_MODULES = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt_llm": "tensorrt_llm",
    "transformers": "transformers",
    "llama_cpp": "llama_cpp",
    "ik_llama_cpp": "llama_cpp",
    "ollama": "llama_cpp",
}
_ALIASES = {
    "trtllm": "tensorrt_llm", "trt_llm": "tensorrt_llm", "tensorrt": "tensorrt_llm", "hf": "transformers",
    "huggingface": "transformers", "llamacpp": "llama_cpp", "llama.cpp": "llama_cpp", "ik_llama.cpp": "ik_llama_cpp",
}  # fmt: skip


def engine_names() -> tuple[str, ...]:
    """Every engine that can be asked, by its own name."""
    return tuple(_MODULES)


def canonical_name(name: str) -> str:
    """The engine's own name for what a person typed; raises QuestionError for an unknown one, naming the nearest."""
    plain = name.strip().lower().replace("-", "_").replace(" ", "_")
    found = _ALIASES.get(plain, plain)
    if found not in _MODULES:
        raise unknown_name("engine", name, (*_MODULES, *_ALIASES))
    return found


def engine(name: str) -> Engine:
    """The engine of that name or alias: a module's ``ENGINES`` table, or its only ``ENGINE``."""
    found = canonical_name(name)
    module = importlib.import_module(f"vramcast.serving.engines.{_MODULES[found]}")
    answer: Engine = module.ENGINES[found] if hasattr(module, "ENGINES") else module.ENGINE
    return answer
