"""What people read, by language: one catalogue of messages for the page, the charts and the terminal.

The catalogues (``en.ftl``, ``zh.ftl``) are Fluent files of one line a message, ``key = text { $value }``, and nothing else of
Fluent; they are read here without a library, so that a terminal's answer in Chinese costs a millisecond and no dependency.
A test reads them with Fluent's own parser too and holds that both say the same.
"""

import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

LANGUAGES = {"en": "English", "zh": "中文"}
FOLDER = Path(__file__).parent
VARIABLE = "VRAMCAST_LANG"
_PLACE = re.compile(r"\{ \$(\w+) \}")
_OTHER = re.compile(r"[^a-z0-9]+")
_LOCALES = ("LC_ALL", "LC_MESSAGES", "LANG")  # in the order of POSIX


class Language:
    """One language: ``say("headline", likely=..., margin=...)`` is the message with its values."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.messages = {**catalogue("en"), **catalogue(code)}

    def __call__(self, key: str, **values: Any) -> str:
        """The message of that key. Raises KeyError for a key or a value that is not there: a fault of ours, caught by tests."""
        text = self.messages[key]
        return _PLACE.sub(lambda found: str(values[found[1]]), text) if "{ $" in text else text

    def word(self, kind: str, name: str) -> str:
        """A word of the answer, such as a term of the ledger or what binds, as the catalogue has it; else as it stands."""
        found = self.messages.get(f"{kind}-{name.replace('_', '-').replace(' ', '-')}")
        return name.replace("_", " ") if found is None else found

    def phrase(self, kind: str, text: str) -> str:
        """A text of several parts (``a; b``), each as the catalogue has it under its own words, else as ``formula`` has it."""
        return "; ".join(self.messages.get(f"{kind}-{_slug(part)}") or self.formula(part) for part in text.split("; "))

    def formula(self, text: str) -> str:
        """A formula or a reason in this language, as far as its phrases are known."""
        if self.code == "en" or not text:
            return text
        from vramcast.language.formulas import told

        return told(text, self.code)

    def moment(self, name: str) -> str:
        """A moment of a run, such as ``backward of the loss``."""
        return self.messages.get(f"instant-{_slug(name)}") or self.formula(name)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return language, (self.code,)


def _slug(text: str) -> str:
    """``No CUDA graphs: slower`` as ``no-cuda-graphs-slower``."""
    return _OTHER.sub("-", text.lower()).strip("-")


@cache
def catalogue(code: str) -> dict[str, str]:
    """The messages of one file by key."""
    lines = (FOLDER / f"{code}.ftl").read_text("utf-8").splitlines()
    pairs = (line.split(" = ", 1) for line in lines if " = " in line and not line.startswith("#"))
    return {line[0]: line[1] for line in pairs}


@cache
def language(code: str) -> Language:
    """That language; English for one that is not there."""
    return Language(code if code in LANGUAGES else "en")


def preferred(asked: str | None, header: str | None) -> str:
    """The language of a visit: as asked, else the first of Accept-Language that is there, else English."""
    if asked in LANGUAGES:
        return str(asked)
    return _first((header or "")[:200].split(","))


def of_terminal() -> str:
    """The language of a terminal: ``VRAMCAST_LANG``, else the locale's, else English."""
    if os.environ.get(VARIABLE):
        return _first([os.environ[VARIABLE]])
    return _first([next((os.environ[name] for name in _LOCALES if os.environ.get(name)), "")])


_SPOKEN: ContextVar[str | None] = ContextVar("spoken", default=None)


def speak(code: str | None) -> None:
    """Set the language of this run, as ``--lang`` does; None: the terminal's own."""
    _SPOKEN.set(code)


def spoken() -> Language:
    """The language of this run: as ``--lang`` said, else the terminal's; English where the output holds no Chinese letters."""
    code = _SPOKEN.get() or of_terminal()
    return language(code if code == "en" or _written_by_output() else "en")


def _written_by_output() -> bool:
    """Whether standard output can write Chinese: ASCII and cp1252 would print question marks."""
    try:
        "中".encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _first(tags: Iterable[str]) -> str:
    """The first of these tags (``zh-CN;q=0.9``, ``zh_CN.UTF-8``) that is a language here, else English."""
    codes = (re.split(r"[;._-]", tag.strip().lower())[0] for tag in tags)
    return next((code for code in codes if code in LANGUAGES), "en")


# What engines and frameworks are called by those who make them.
_PROGRAMS = {
    "vllm": "vLLM", "sglang": "SGLang", "tensorrt_llm": "TensorRT-LLM", "tgi": "TGI", "lmdeploy": "LMDeploy",
    "llama_cpp": "llama.cpp", "ollama": "Ollama", "hf_trainer": "HF Trainer", "deepspeed": "DeepSpeed",
    "megatron": "Megatron-LM", "unsloth": "Unsloth", "llama_factory": "LLaMA-Factory", "trl": "TRL", "ms_swift": "ms-swift",
    "llm_foundry": "LLM Foundry", "nemo_automodel": "NeMo AutoModel", "nemo_rl": "NeMo RL", "litgpt": "LitGPT",
    "colossalai": "Colossal-AI", "pytorch": "PyTorch", "megatron_bridge": "Megatron-Bridge", "openrlhf": "OpenRLHF",
    "megatron_deepspeed": "Megatron-DeepSpeed", "prime_rl": "prime-rl", "llama_recipes": "llama-recipes", "xtuner": "XTuner",
    "peft_bench": "PEFT benchmark", "qwen_finetune": "Qwen finetune.py",
}  # fmt: skip


def program_name(name: str) -> str:
    """``vLLM`` for ``vllm``; a name that is not in the table stands as it is."""
    return _PROGRAMS.get(name, name)


_TRL_NEVER = 4  # TRL's own releases are 0.x and 1.x: a run that pins transformers alone is told by that


def program_and_release(workload: Mapping[str, object]) -> str:
    """The engine or framework of a workload and its release: ``vLLM 0.33.0``, ``TRL, transformers 4.45``."""
    name = str(workload.get("engine") or workload.get("framework") or "")
    release = str(workload.get("engine_version") or workload.get("framework_version") or "")
    major = release.partition(".")[0]
    between = ", transformers " if name == "trl" and major.isdigit() and int(major) >= _TRL_NEVER else " "
    return f"{program_name(name)}{between}{release}".strip()
