"""An engine's flags taken apart: plain names and values, aliases and JSON values written out, and words that are none.

``--speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'`` becomes two flags; so do dotted ones. Nothing is judged
here: a value is checked where the question is made.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from vramcast.errors import VramcastError
from vramcast.reading.serving.spelling import ALIASES, IDLE, SPEED, SWITCHES

_SWITCH_WORDS = frozenset({"true", "false", "on", "off", "1", "0", "yes", "no", "auto", "enabled", "disabled"})
_MOST_FLAGS = 2_000
_PLAIN = 40
_NESTED = ("speculative-config", "compilation-config", "attention-config", "limit-mm-per-prompt", "kernel-config")
# JSON that changes a model's configuration, of which a longer rope is read here.
_OVERRIDES = ("rope-scaling", "hf-overrides", "json-model-override-args")
_DRAFT = {
    "method": "speculative-method", "model": "speculative-model", "num-speculative-tokens": "num-speculative-tokens",
    "num-tokens": "num-speculative-tokens",
}  # fmt: skip


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """``name``: plain, without leading dashes unless short; ``typed``: as it stands in the artefact."""

    name: str
    values: tuple[str, ...] = ()
    typed: str = ""

    @property
    def value(self) -> str | None:
        """The one value, joined where a flag takes several; None for a bare switch."""
        return " ".join(self.values) if self.values else None


class ParsedFlags(msgspec.Struct, frozen=True, kw_only=True):
    """Flags in order, and the words that belong to none."""

    flags: tuple[Flag, ...]
    words: tuple[str, ...] = ()


def parsed_flags(engine: str, words: Sequence[str], switches: Iterable[str] = ()) -> ParsedFlags:
    """The flags in these words. ``switches``: names that take no value, beside those known to take none."""
    bare = SWITCHES | frozenset(switches)
    aliases = ALIASES.get(engine, {})
    flags: list[Flag] = []
    loose: list[str] = []
    waiting = list(words)[:_MOST_FLAGS]
    while waiting:
        word = waiting.pop(0)
        if not is_flag(word) or word == "--":
            loose += [word] if word != "--" else []
            continue
        typed, joined, value = word.partition("=")
        name = plain_name(typed, aliases)
        values = (value,) if joined else _values(name, waiting, bare)
        flags += _written_out(engine, Flag(name=name, values=values, typed=typed))
    return ParsedFlags(flags=_without_towers(flags), words=tuple(loose))


def _without_towers(flags: list[Flag]) -> tuple[Flag, ...]:
    """Dotted limits of which each is none, as one switch: no image, so no tower is loaded."""
    limits = [flag for flag in flags if flag.name.startswith("limit-mm-per-prompt.")]
    if {"limit-mm-per-prompt.image"} <= {flag.name for flag in limits} and all(flag.value == "0" for flag in limits):
        rest = [flag for flag in flags if flag not in limits]
        return (*rest, Flag(name="language-model-only", typed="--limit-mm-per-prompt of none"))
    return tuple(flags)


def is_flag(word: str) -> bool:
    """Whether a word is a flag rather than a value: -1 and -0.5 are values."""
    return len(word) > 1 and word.startswith("-") and not word[1:].replace(".", "", 1).isdigit()


def plain_name(typed: str, aliases: dict[str, str]) -> str:
    """``--max_model_len`` as max-model-len, ``-tp`` as tensor-parallel-size, ``-z`` as it stands."""
    long = typed.lstrip("-").replace("_", "-")
    short = typed if not typed.startswith("--") else long
    return aliases.get(short, aliases.get(long, long if typed.startswith("--") or len(long) > 4 else typed))


def is_idle(name: str) -> bool:
    """Whether a flag changes neither memory nor speed."""
    return name in IDLE or name.removeprefix("no-") in IDLE


def is_speed(name: str) -> bool:
    """Whether a flag changes speed alone."""
    return name in SPEED or name.removeprefix("no-") in SPEED or bool(re.fullmatch(r"-O[123]?", name))


def _values(name: str, waiting: list[str], bare: frozenset[str]) -> tuple[str, ...]:
    plain = name.removeprefix("no-")
    if name in _WITH_WORD and waiting and re.fullmatch(r"\$\{\w+\}", waiting[0]):
        return (waiting.pop(0),)
    if plain in bare or name in bare:
        return (waiting.pop(0),) if waiting and waiting[0].lower() in _SWITCH_WORDS else ()
    values: list[str] = []
    several = name in _SEVERAL
    while waiting and not is_flag(waiting[0]) and (several or not values):
        values.append(waiting.pop(0))
    return tuple(values)


_WITH_WORD = frozenset({"flash-attn", "fit"})  # switches that take a word in newer releases
_SEVERAL = frozenset(
    {"served-model-name", "lora-modules", "lora-paths", "cuda-graph-bs", "cuda-graph-sizes", "cudagraph-capture-sizes",
     "cuda-graph-bs-decode", "middleware", "allowed-origins", "lora-target-modules", "override-tensor"}
)  # fmt: skip


def _written_out(engine: str, flag: Flag) -> list[Flag]:
    """The flag, or those that its value holds."""
    head, dot, tail = flag.name.partition(".")
    if dot and head == "limit-mm-per-prompt":
        return [flag]  # one kind of input of several: whether none is left is known at the end
    if dot and head in _NESTED:
        return _of_config(head, {tail: flag.value or ""}, flag.typed)
    if engine == "vllm" and flag.name == "task" and flag.value:
        # --task of releases before --runner (0.10): whatever is no generation makes vectors or scores
        runner = flag.value if flag.value in ("auto", "generate") else "pooling"
        return [Flag(name="runner", values=(runner,), typed=flag.typed)]
    if flag.name in _OVERRIDES and flag.values and (overrides := _mapping(flag.value or "")) is not None:
        return _of_overrides(flag, overrides)
    if flag.name in _NESTED and flag.values and (held := _mapping(flag.values[0])) is not None:
        return _of_config(flag.name, held, flag.typed)
    if engine == "vllm" and re.fullmatch(r"-O\.?(0|none)|-O", flag.name) and (flag.name != "-O" or flag.value == "0"):
        return [Flag(name="enforce-eager", typed=f"{flag.typed} 0")]
    if engine == "sglang" and flag.name in ("cuda-graph-bs", "cuda-graph-bs-decode"):
        sizes = [int(word) for word in re.findall(r"\d{1,6}", flag.value or "")]
        return [Flag(name="cuda-graph-max-bs", values=(str(max(sizes)),), typed=f"{flag.typed} largest")] if sizes else []
    if engine == "vllm" and flag.name in ("cuda-graph-sizes", "cudagraph-capture-sizes"):
        sizes = [int(word) for word in re.findall(r"\d{1,6}", flag.value or "")]
        return (
            [Flag(name="max-cudagraph-capture-size", values=(str(max(sizes)),), typed=f"{flag.typed} largest")] if sizes else []
        )
    if flag.name == "speculative-num-draft-tokens" and engine == "sglang" and "".join(flag.values).isdigit():
        # it counts the token that is checked beside those drafted: steps + 1 (sglang/srt/server_args.py)
        return [
            Flag(name="num-speculative-tokens", values=(str(max(0, int(flag.values[0]) - 1)),), typed=f"{flag.typed} less one")
        ]
    if flag.name == "cache-type" and engine == "llama_cpp":
        return [Flag(name=name, values=flag.values, typed=f"{flag.typed} both") for name in ("cache-type-k", "cache-type-v")]
    return [flag]


def _of_config(name: str, held: dict[str, Any], typed: str) -> list[Flag]:
    """Flags of a JSON value: the draft of --speculative-config, the graphs of --compilation-config, no images at all."""
    plain = {str(key).replace("_", "-"): value for key, value in held.items()}
    if name == "limit-mm-per-prompt":
        none = str(plain.get("image")) == "0" and all(
            str(value) == "0" for value in plain.values()
        )  # images stay without a limit
        return (
            [Flag(name="language-model-only", typed=f"{typed} of none")]
            if none
            else [Flag(name=f"{name}.{key}", values=(_shown(value),), typed=f"{typed} {key}") for key, value in plain.items()]
        )
    found: list[Flag] = []
    for key, value in plain.items():
        if name == "speculative-config" and key in _DRAFT:
            found.append(Flag(name=_DRAFT[key], values=(str(value),), typed=f"{typed} {key}"))
        elif name == "compilation-config" and key == "cudagraph-mode":
            eager = str(value).upper().endswith("NONE")
            found.append(
                Flag(
                    name="enforce-eager" if eager else "cudagraph-mode",
                    values=() if eager else (str(value),),
                    typed=f"{typed} {key}",
                )
            )
        elif name == "compilation-config" and key in ("cudagraph-capture-sizes", "max-cudagraph-capture-size"):
            sizes = value if isinstance(value, list) else [value]
            whole = [int(size) for size in sizes if str(size).isdigit()]
            if whole:
                found.append(Flag(name="max-cudagraph-capture-size", values=(str(max(whole)),), typed=f"{typed} {key}"))
        elif name == "attention-config" and key == "backend":
            found.append(Flag(name="attention-backend", values=(str(value),), typed=f"{typed} {key}"))
        elif name == "kernel-config" and key == "moe-backend":
            found.append(Flag(name="moe-backend", values=(str(value),), typed=f"{typed} {key}"))
        else:
            found.append(Flag(name=f"{name}.{key}", values=(_shown(value),), typed=f"{typed} {key}"))
    return found


def _of_overrides(flag: Flag, held: dict[str, Any]) -> list[Flag]:
    """The positions that a longer rope gives, and the flag itself where it changes anything else.

    Source: vllm 0.33, config/model.py (_get_and_verify_max_len): YaRN's original positions times its factor, and
    max_position_embeddings as they stand; where the original ones are the model's own, any longer context is let through.
    """
    text = held.get("text_config") if isinstance(held.get("text_config"), dict) else {}
    inner = {**held, **(text or {})}
    rope = held if flag.name == "rope-scaling" else inner.get("rope_parameters") or inner.get("rope_scaling") or {}
    factor, first = (
        rope.get(name) if isinstance(rope, dict) else None for name in ("factor", "original_max_position_embeddings")
    )
    longest = inner.get("max_position_embeddings")
    found = []
    if isinstance(factor, int | float) and isinstance(first, int) and factor * first >= 1:
        found = [Flag(name="max-positions", values=(str(int(factor * first)),), typed=f"{flag.typed} factor x original")]
    elif isinstance(longest, int) and longest > 0:
        found = [Flag(name="max-positions", values=(str(longest),), typed=f"{flag.typed} max_position_embeddings")]
    elif isinstance(factor, int | float) and factor > 1:
        found = [Flag(name="allow-longer-context", typed=f"{flag.typed} factor")]
    others = inner.keys() - {"rope_parameters", "rope_scaling", "max_position_embeddings", "text_config"}
    return found if found and (flag.name == "rope-scaling" or not others) else [*found, flag]


def _shown(value: Any) -> str:
    """A value of a JSON flag as a word; what is no plain word is only said to be set."""
    if isinstance(value, bool):
        return str(value).lower()
    plain = isinstance(value, int | float) or (isinstance(value, str) and len(value) < _PLAIN)
    return str(value) if plain else "set"


def _mapping(text: str) -> dict[str, Any] | None:
    """The JSON object in a flag's value, vLLM's older ``image=1,video=0``, or None."""
    from vramcast.untrusted import parse_yaml

    if re.fullmatch(r"\w+=\d+(,\w+=\d+)*", text):
        return dict(pair.split("=") for pair in text.split(","))
    if "{" not in text:
        return None
    try:
        found = parse_yaml(text[text.index("{") : text.rindex("}") + 1] if "}" in text else text, "a flag's value")
    except VramcastError:
        return None
    return found if isinstance(found, dict) else None


def words_of_flags(flags: Iterable[Flag]) -> tuple[str, ...]:
    """Flags as words again, spelled as they were typed where one flag is one flag still."""
    words: list[str] = []
    for flag in flags:
        name = (
            flag.typed if flag.typed and " " not in flag.typed else flag.name if flag.name.startswith("-") else f"--{flag.name}"
        )
        joined = any(value.startswith("-") for value in flag.values)
        words += [f"{name}={flag.value}"] if joined else [name, *flag.values]
    return tuple(words)
