"""Formats as data: each program's own names for what a step takes, recorded from its sources in ``tables.toml``.

A new program is a new table there: its title, the source and version read, how its commands and files are known, its keys by
what they set, its defaults, and the keys that cost nothing. Roles beside the trained model (the engine of the rollouts, the
reference, a critic) are read the same way and told one by one.
"""

import re
from functools import cache
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.reading.training import example_scripts, huggingface, shared, shared_names
from vramcast.reading.training.keys import Rule, dtype, flag, names, natural, number, text, when, whole
from vramcast.reading.training.settings import Settings
from vramcast.untrusted import printable

_FILE = Path(__file__).with_name("tables.toml")
_COUNTS = {"d": "data", "p": "pipeline", "t": "tensor", "m": "tensor", "c": "context", "e": "expert"}


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One program: its title, the source read, the ``framework`` whose rules its step has, how it is known, its keys.

    ``programs``: parts of a word that name it in a command; ``marks`` and ``sure``: keys and sections that files of its kind
    have, and those of no other; ``keys``: its names by what they set (``MEANINGS``); ``base``: a format whose keys it takes too,
    by themselves or under the sections ``under``; ``usual``: its defaults; ``idle``: keys without effect;
    ``void``: keys of the base that this program does not heed.
    """

    title: str
    source: str
    framework: str
    programs: list[str] = []
    marks: str = ""
    sure: str = ""
    base: str = ""
    under: list[str] = []
    keys: dict[str, str] = {}
    usual: dict[str, Any] = {}
    idle: str = ""
    void: str = ""


def _rules(base: ModuleType | None) -> dict[str, Rule]:
    return base.RULES if base is not None else {}


class Format:
    """A table as a format: the names that the module of one has."""

    def __init__(self, table: Table, base: ModuleType | None) -> None:
        self.table, self.base = table, base
        self.NAME = table.title
        self.SIGNATURE = frozenset(table.marks.split()) | frozenset(table.sure.split())
        sections, void = table.under or [""], frozenset(table.void.split())
        given: dict[str, Rule] = {f"{section}{key}": rule for section in sections for key, rule in _rules(base).items()}
        own = {key: MEANINGS[meaning] for meaning, line in table.keys.items() for key in line.split()}
        self.RULES: dict[str, Rule] = {key: rule for key, rule in (given | own).items() if key not in void}
        inherited = base.IDLE if base is not None else ()
        self.IDLE: tuple[str, ...] = (
            *table.idle.split(),
            *void,
            *(f"{section}{key}" for section in sections for key in inherited),
        )

    def finish(self, settings: Settings) -> None:
        """What keys mean together, the roles, then the program's defaults and those of its base."""
        because = f"{self.table.title}: its default"
        settings.put("framework", self.table.framework, f"the keys of {self.table.title}")
        of_megatron = settings.get("framework") in ("megatron", "megatron_bridge")
        for target, value in self.table.usual.items():
            if self._stands(target, settings, of_megatron):
                settings.default(target, tuple(value) if isinstance(value, list) else value, because)
        if settings.get("zero.asked") and settings.get("zero") is None:
            settings.missing.append("the stage of DeepSpeed")
        settings.drop("zero.asked")
        _lengths(settings)
        _ranks(settings)
        shared.together(settings, self.table.title)
        _roles(settings)
        if not of_megatron:
            _chunks(settings)
        if of_megatron:
            from vramcast.reading.training import megatron

            settings.default("optimizer.distributed", True, because)
            megatron.finish(settings)
        elif self.base is not None and self.table.base != "megatron":
            self.base.finish(settings)
        if told := settings.get("task.of_name"):
            settings.put("options.task", told, settings.because["task.of_name"])
            settings.drop("task.of_name")
        huggingface.adapters(settings)

    @staticmethod
    def _stands(target: str, settings: Settings, of_megatron: bool) -> bool:
        """Whether a default is one of this run: FSDP where nothing else divides the model, an adapter's where one is."""
        if target == "fsdp":
            return not (of_megatron or settings.get("zero") is not None)
        if target.startswith("length."):  # of a run that has prompts and answers
            return settings.get("seq") is None and bool(settings.get("length.source") or settings.get("length.target"))
        return not target.startswith("adapter.") or bool(settings.get("adapter.rank") or settings.get("adapter.on"))


def _lengths(settings: Settings) -> None:
    """The longest sample where only one of its parts is told, and how many samples the tokens of a micro-batch hold."""
    parts = [settings.get(f"length.{part}") for part in ("source", "target")]
    if any(parts) and not all(parts) and settings.get("seq") is None and not settings.get("tokens.at_once"):
        absent, other = ("answer", "prompt") if parts[0] else ("prompt", "answer")
        settings.unread.append(f"the longest {absent}, which is not said (the sequence is that of the {other} alone)")
    tokens = settings.get("tokens.at_once")
    told = [settings.because[f"length.{part}"] for part in ("source", "target") if settings.get(f"length.{part}")]
    if told:
        settings.put("seq", sum(filter(None, parts)), " and ".join(told))
    elif tokens:
        settings.put("seq", tokens, f"{settings.because['tokens.at_once']}: packed up to this")
    if tokens:
        held = max(1, tokens // settings.get("seq", tokens))
        settings.replace("micro_batch", held, f"{settings.because['tokens.at_once']}: {tokens:,} tokens at once")
    settings.drop("length.source", "length.target", "tokens.at_once")


def _ranks(settings: Settings) -> None:
    """Cards as the product of the ranks of a layout that tells all of them."""
    if data := settings.get("cards.data"):
        sizes = [settings.get(f"parallel.{name}") or 1 for name in ("tp", "pp", "cp")]
        settings.put("gpus", prod([data, *sizes]), settings.because["cards.data"])
        settings.drop("cards.data")
    if (wide := settings.get("gradients.wide")) is not None and settings.get("framework") != "megatron":
        if wide:
            settings.put("grad_dtype", "float32", settings.because["gradients.wide"])
        settings.drop("gradients.wide")


def _roles(settings: Settings) -> None:
    """The models beside the trained one: which share its cards, and what of them stays there during an update."""
    said = settings.group("role")
    if not said:
        return
    kl = said.get("kl_on") if said.get("kl_on") is not None else (said.get("kl") or 0) > 0
    told = ["the trained actor is counted"]
    if kl and not settings.get("adapter.rank"):
        kept = not said.get("ref_offload") and said.get("shares", True)
        if kept:
            settings.put("options.frozen_copies", 1, settings.because.get("role.kl_on") or settings.because.get("role.kl", ""))
        told.append(f"a reference {'on its cards is counted' if kept else 'on the host or on cards of its own is not'}")
    share, sleeps = said.get("share"), said.get("sleeps", False)
    if said.get("colocated") and share and not sleeps:
        settings.put("options.tenant", float(share), settings.because["role.share"])
        told.append(f"an engine that claims {share:.0%} of the same cards is counted")
    elif said.get("engine") or share:
        where = "sleeps while the actor learns" if sleeps and said.get("colocated", True) else "has cards of its own"
        told.append(f"the engine of the rollouts {where} and is not")
    if said.get("colocated") is False and said.get("apart_each") and settings.get("gpus"):
        apart = said["apart_each"] * (said.get("apart_nodes") or 1)
        if apart < settings.get("gpus"):
            settings.replace("gpus", settings.get("gpus") - apart, f"{settings.because['gpus']}, less the engine's {apart}")
    if said.get("critic"):
        told.append("a critic is not")
    settings.drop(*(f"role.{name}" for name in said))
    if len(told) > 1:
        settings.put("roles", ", ".join(told), "the roles that this file names")


def _framework(settings: Settings, value: Any, because: str) -> None:
    """A back end by its name: Megatron's, FSDP's first or second, a stage of ZeRO."""
    word = str(value).lower()
    if "megatron" in word or word in ("mcore", "bridge"):
        settings.put("framework", "megatron", because)
    elif "archon" in word:
        settings.put("framework", "torchtitan", because)
    elif "deepspeed" in word or "zero" in word:
        settings.put("framework", "hf_trainer", because)
        settings.put("zero.asked", True, because)
        shared_names.sharding(settings, word, because)
    elif "fsdp" in word:
        settings.put("fsdp", 1 if word == "fsdp1" else 2, because)


def _switch(framework: str) -> Rule:
    def read(settings: Settings, value: Any, because: str) -> None:
        if flag(value):
            settings.put("framework", framework, because)

    return read


def _allocation(settings: Settings, value: Any, because: str) -> None:
    """AReaL's ``sglang:d4t1+d4p1t1``: cards of the rollouts, a plus, those of the trainer by data, pipeline, tensor ranks."""
    engine, plus, own = str(value).rpartition("+")
    counts = {_COUNTS[letter]: int(size) for letter, size in re.findall(r"([dptmce])(\d+)", own.rpartition(":")[2].split("|")[0])}
    if not counts:
        settings.unread.append(f"{because.rsplit(': ', 1)[-1]} ({str(value)[:60]})")
        return
    for axis, target in (("tensor", "tp"), ("pipeline", "pp"), ("context", "cp"), ("expert", "ep")):
        settings.put(f"parallel.{target}", counts.get(axis, 1), because)
    ranks = [counts.get(axis, 1) for axis in ("data", "pipeline", "tensor", "context")]
    settings.put("gpus", prod(ranks), because)
    if ":" in own:
        _framework(settings, own.partition(":")[0], because)
    if plus:
        settings.put("role.engine", engine, because)


def _cards(settings: Settings, value: Any, because: str) -> None:
    """Cards as a list of numbers (each node's), as ``list(range(0,32))``, or as one number."""
    if isinstance(value, list) and value and all(isinstance(one, int | str) and str(one).isdigit() for one in value):
        settings.put("cards.all", sum(int(one) for one in value), because)
    elif found := re.fullmatch(r"list\(range\((?:(\d{1,6}), *)?(\d{1,6})(?:, *([1-9]\d{0,3}))?\)\)", str(value).strip()):
        settings.put("cards.all", len(range(int(found[1] or 0), int(found[2]), int(found[3] or 1))), because)
    elif whole(value):
        settings.put("cards.all", whole(value), because)


def _mapped(settings: Settings, value: Any, because: str) -> None:
    """Numbers of cards that a role has: ``[0,1,2,3]`` or ``list(range(0,32))``."""
    if isinstance(value, str) and (listed := re.fullmatch(r"\[([\d, ]+)\]", value.strip())):
        value = listed[1].split(",")
    if isinstance(value, list):
        settings.put("cards.all", len(value), because)
    else:
        _cards(settings, value, because)


_OPTIMIZERS = {"lionw": "lion"}  # OLMo 0.6, olmo/optim.py: LionW has Lion's one momentum


def _optimizer(settings: Settings, value: Any, because: str) -> None:
    """An optimizer by its name; a program's own that is in no row is told as unread."""
    try:
        shared_names.optimizer(settings, _OPTIMIZERS.get(str(value).lower(), value), because)
    except QuestionError:
        settings.unread.append(f"{because.rsplit(': ', 1)[-1]} ({printable(str(value))[:40]}, which is not known here)")


def _ungated(settings: Settings, value: Any, because: str) -> None:
    """StarCoder2's blocks: two matrices with GELU between, layer norms, biases (nanotron, models/starcoder2.py)."""
    if flag(value):
        for name, told in {"gated": False, "norm": "layernorm", "bias": True, "activation": "gelu"}.items():
            settings.put(f"shape.{name}", told, because)


def _activation(settings: Settings, value: Any, because: str) -> None:
    """Gated ones have a third matrix."""
    word = str(value).lower()
    settings.put("shape.gated", word in ("swiglu", "geglu", "reglu", "glu"), because)
    settings.put("shape.activation", {"swiglu": "silu", "geglu": "gelu"}.get(word, word), because)


def _attention_of_layers(settings: Settings, value: Any, because: str) -> None:
    """GPT-NeoX's ``[[["flash"], 12]]``: flash where a layer names it, else Megatron's own softmax."""
    settings.put("attention", "flash" if "flash" in str(value)[:2000] else "unfused", because)


def _unread_where_on(settings: Settings, value: Any, because: str) -> None:
    """A switch that changes memory and that no recipe has a word for: told where it is on."""
    if flag(value):
        settings.unread.append(because.rsplit(": ", 1)[-1])


def _sequences_apart(settings: Settings, value: Any, because: str) -> None:
    """Ulysses' ranks, over which a sequence is spread: no recipe counts them, so more than one is told."""
    if whole(value) not in (None, 1):
        settings.unread.append(f"{because.rsplit(': ', 1)[-1]} ({value})")


def _chunks(settings: Settings) -> None:
    """Full checkpointing that keeps one input for several layers (DeepSpeed's PipelineModule, activation_checkpoint_interval)."""
    layers = settings.get("recompute.layers")
    if layers and layers > 1 and settings.get("checkpointing") == "full":
        settings.replace("checkpointing", f"uniform:{layers}", settings.because["recompute.layers"])
        if "activations" in settings.get("offload", []):  # counted on the card, which is the larger
            settings.get("offload").remove("activations")
            settings.unread.append("checkpoints on the host (with several layers to a checkpoint they are counted on the card)")
    settings.drop("recompute.layers")


def _task(settings: Settings, value: Any, because: str) -> None:
    word = str(value).lower().replace("_", "").replace("-", "")
    found = next((task for task in ("dpo", "kto", "orpo", "sft", "reward", "grpo") if word.startswith(task)), None)
    settings.put("options.task", found, because)


MEANINGS: dict[str, Rule] = {
    **{name: (name, whole) for name in ("micro_batch", "global_batch", "accumulate", "seq", "fsdp")},
    **{name: (f"parallel.{name}", lambda value: max(1, int(value)) if str(value).lstrip("-").isdigit() else None)
       for name in ("tp", "pp", "cp", "ep", "vpp", "replicate")},
    **{name: (f"shape.{name}", whole)
       for name in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "head_dim", "positions")},
    "ffn_of_gated": ("shape.ffn", lambda value: (whole(value) or 0) // 2 or None),  # gate and up in one number
    "tied": ("shape.tied", flag),
    "ungated": _ungated,
    "experts": ("shape.experts", whole),
    "active": ("shape.active", whole),
    "expert_ffn": ("shape.expert_ffn", whole),
    "untied": ("shape.tied", lambda value: None if flag(value) is None else not flag(value)),
    "norm": ("shape.norm", lambda value: "rmsnorm" if "rms" in str(value) else "layernorm"),
    "position": ("shape.position", lambda value: {"rotary": "rope", "rope": "rope", "alibi": "alibi"}.get(str(value), "learned")),
    "activation": _activation,
    "hidden_dropout": ("options.hidden_dropout", number),
    "attention_dropout": ("options.attention_dropout", number),
    "attention_of_layers": _attention_of_layers,
    "wide_gradients": ("gradients.wide", flag),
    "data_ranks": ("cards.data", whole),
    "model": ("model", text),
    "sp": ("parallel.sp", flag),
    "prompt": ("length.source", whole),
    "answer": ("length.target", whole),
    "tokens_at_once": ("tokens.at_once", whole),
    "cards_each": ("cards.each", whole),
    "cards_nodes": ("cards.nodes", whole),
    "cards_all": _cards,
    "cards_mapped": _mapped,
    "zero": ("zero", natural),
    "framework": _framework,
    "megatron": _switch("megatron"),
    "allocation": _allocation,
    "task": _task,
    "checkpointing": shared_names.checkpointing,
    "no_checkpointing": shared_names.no_checkpointing,
    "checkpointed_layers": ("recompute.layers", whole),
    "partitioned_activations": _unread_where_on,
    "reentrant": ("options.reentrant", flag),
    "precision": shared_names.precision,
    "bf16": huggingface.precision("bfloat16"),
    "fp16": huggingface.precision("float16"),
    "weights": ("param_dtype", dtype),
    "optimizer": _optimizer,
    "attention": huggingface.attention,
    "fused": huggingface.fused_kernels,
    "fsdp_named": ("fsdp", lambda value: {"fsdp": 1, "fsdp2": 2}.get(str(value).lower())),
    "ulysses": _sequences_apart,
    "compile": ("compile", flag),
    "packed": ("lengths.packed", flag),
    "reshard": ("options.reshard", flag),
    "offload_parameters": huggingface.offloads("parameters"),
    "offload_optimizer": huggingface.offloads("optimizer"),
    "offload_activations": huggingface.offloads("activations"),
    "lora_rank": ("adapter.rank", natural),
    "lora_targets": shared_names.targets,
    "lora_dropout": ("adapter.dropout", number),
    "lora_on": ("adapter.on", flag),
    "four_bit": huggingface.four_bit,
    "kept_modules": ("adapter.modules_to_save", names),
    "double_quant": ("options.double_quant", flag),
    "quant_kind": ("quant.kind", text),
    "bits": huggingface.bits,
    "full": ("adapter.on", when(False)),
    "frozen": example_scripts.frozen,
    "freezes": ("options.freezes_towers", flag),
    "tunable": example_scripts.tunable_parts,
    "kl": ("role.kl", number),
    "kl_on": ("role.kl_on", flag),
    "ref_offload": ("role.ref_offload", flag),
    "shares": ("role.shares", flag),
    "colocated": ("role.colocated", flag),
    "engine": ("role.engine", text),
    "share": ("role.share", number),
    "sleeps": ("role.sleeps", flag),
    "critic": ("role.critic", text),
    "apart_each": ("role.apart_each", whole),
    "apart_nodes": ("role.apart_nodes", whole),
}  # fmt: skip


@cache
def tables() -> dict[str, Table]:
    """Every recorded program by its name."""
    return msgspec.toml.decode(_FILE.read_bytes(), type=dict[str, Table])


def program_named(word: str) -> str:
    """The recorded program that a word of a command starts (``openrlhf.cli.train_ppo_ray``); "" for none."""
    leaf = word.rsplit("/", 1)[-1]
    return next((name for name, table in tables().items() if any(_names(part, word, leaf) for part in table.programs)), "")


def _names(part: str, word: str, leaf: str) -> bool:
    """Whether a part of a program's name is in a word; a file's name alone is the whole name of the file."""
    return part == leaf if part.endswith(".py") and "/" not in part else part in word
