"""A command line that starts a serving engine, taken apart: which engine, which model, how many cards, and its own flags."""

import re
import shlex
from collections.abc import Sequence

import msgspec

from vramcast.errors import QuestionError

_LONGEST = 200_000
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w{0,60})=(\S*)")
_PROMPT = re.compile(r"^\s*(?:[$#>]|\w+@[\w.-]+:[^$#]*[$#])\s+")
# Programs by the last part of their path: engine, and the flag that names the model ("" where it is the first word).
_PROGRAMS = {
    "llama-server": ("llama_cpp", "-m"), "llama-cli": ("llama_cpp", "-m"), "llama-bench": ("llama_cpp", "-m"),
    "llama-run": ("llama_cpp", ""), "trtllm-serve": ("tensorrt_llm", ""), "koboldcpp": ("llama_cpp", "--model"),
}  # fmt: skip
_MODULES = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "sglang.launch_server": "sglang",
}
_IMAGES = {
    "vllm/vllm-openai": "vllm",
    "lmsysorg/sglang": "sglang",
    "ghcr.io/ggml-org/llama.cpp": "llama_cpp",
    "ggerganov/llama.cpp": "llama_cpp",
}
_MODEL_FLAGS = ("--model", "--model-path", "-m", "--hf-repo", "-hf", "-hfr", "--model_path")
_SERVE_WORDS = ("serve", "run", "chat", "bench", "launch_server")


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """``flags``: the engine's own, as typed; ``gpus``: how many cards the environment shows, 0 where it says nothing."""

    engine: str
    model: str
    flags: tuple[str, ...] = ()
    version: str | None = None
    gpus: int = 0


def launch_of(words: Sequence[str]) -> Launch | None:
    """The launch that words of a shell line describe; None where none of them starts a known engine."""
    rest, known = _environment(list(words))
    found = _program(rest)
    if found is None:
        return None
    engine, version, flags = found
    model, flags = _model(flags, engine)
    if not model:
        raise QuestionError(f"{' '.join(words)[:80]!r} starts {engine} and names no model")
    visible = known.get("CUDA_VISIBLE_DEVICES") or known.get("NVIDIA_VISIBLE_DEVICES") or ""
    gpus = len(visible.split(",")) if visible and visible not in ("all", "void", "none") else 0
    return Launch(engine=engine, model=model, flags=tuple(flags), version=version, gpus=gpus)


def read_script(text: str) -> Launch | None:
    """The first launch in a script or a pasted text; continuations and comments are understood, nothing is run."""
    plain = re.sub(r"\\\s*\n", " ", text[:_LONGEST])
    known: dict[str, str] = {}
    for line in plain.splitlines():
        bare = _PROMPT.sub("", line).strip()
        if not bare or bare.startswith("#"):
            continue
        words = _words(bare, known)
        if len(words) == 1 and (match := _ASSIGNMENT.fullmatch(words[0])):
            known[match[1]] = match[2]
            continue
        if words[:1] == ["export"] and len(words) > 1 and (match := _ASSIGNMENT.fullmatch(words[1])):
            known[match[1]] = match[2]
            continue
        shown = f"CUDA_VISIBLE_DEVICES={known['CUDA_VISIBLE_DEVICES']}" if "CUDA_VISIBLE_DEVICES" in known else ""
        if found := launch_of([shown, *words] if shown else words):
            return found
    return None


def _words(line: str, known: dict[str, str]) -> list[str]:
    """The words of a line, its variables filled in where the script set them."""
    filled = re.sub(r"\$\{?(\w{1,60})\}?", lambda m: known.get(m[1], m[0])[:_LONGEST], line)
    try:
        return shlex.split(filled[:_LONGEST], comments=True)
    except ValueError:
        return filled.split()


def _environment(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """The words after ``NAME=value`` and wrappers that change nothing, and those values."""
    known: dict[str, str] = {}
    while words and (match := _ASSIGNMENT.fullmatch(words[0])):
        known[match[1]] = match[2]
        words = words[1:]
    while words and words[0] in ("nohup", "sudo", "exec", "time", "env", "uv", "uvx"):
        words = words[2:] if words[0] == "uv" and words[1:2] == ["run"] else words[1:]
    return words, known


def _program(words: list[str]) -> tuple[str, str | None, list[str]] | None:
    """Engine, its version where an image says it, and the words after the program."""
    if not words:
        return None
    name, rest = words[0].rsplit("/", 1)[-1], words[1:]
    if name == "vllm" and rest[:1] and rest[0] in _SERVE_WORDS:
        return "vllm", None, rest[2:] if rest[0] == "bench" else rest[1:]
    if name == "ollama" and rest[:1] and rest[0] in ("run", "pull", "show"):
        return "ollama", None, rest[1:]
    if name == "sglang" and rest[:1] and rest[0] == "serve":
        return "sglang", None, rest[1:]
    if name in ("docker", "podman", "nerdctl"):
        return _container(rest)
    if name.startswith("python"):
        place = rest.index("-m") + 1 if "-m" in rest else 0
        return (
            (_MODULES[rest[place]], None, rest[place + 1 :])
            if place and rest[place : place + 1] and rest[place] in _MODULES
            else None
        )
    return (_PROGRAMS[name][0], None, rest[1:] if rest[:1] == ["serve"] else rest) if name in _PROGRAMS else None


def _container(words: list[str]) -> tuple[str, str | None, list[str]] | None:
    """The arguments after a known image."""
    for place, word in enumerate(words):
        if found := image_engine(word):
            return *found, words[place + 1 :]
    return None


def image_engine(image: str) -> tuple[str, str | None] | None:
    """Engine and version of a container image (``vllm/vllm-openai:v0.11.0``), or None."""
    name, _, tag = image.partition(":")
    engine = next((engine for known, engine in _IMAGES.items() if name.endswith(known)), None)
    if engine is None:
        return None
    version = re.fullmatch(r"v?(\d{1,3}(?:\.\d{1,4}){1,3})(?:[.-].*)?", tag)
    return engine, version[1] if version else None


def _model(flags: list[str], engine: str) -> tuple[str, list[str]]:
    """The model and the flags without it: a flag's value, else the first word that is neither a flag nor a flag's value."""
    for place, word in enumerate(flags):
        name, joined, value = word.partition("=")
        if name in _MODEL_FLAGS and engine != "ollama":
            taken = value if joined else next(iter(flags[place + 1 : place + 2]), "")
            return taken, flags[:place] + flags[place + (1 if joined else 2) :]
    if flags and not flags[0].startswith("-"):
        return flags[0], flags[1:]
    return "", flags
