"""A question from what starts an engine: a pasted line, a script, a compose file, an engine's YAML, a Modelfile.

What is typed beside it wins. Flags that cost no memory are listed as such; a flag that no rule reads is named, never dropped.
"""

from collections.abc import Sequence

import msgspec

from vramcast.ledger import Assumption, Unmodelled
from vramcast.reading.serving.launch import Launch
from vramcast.serving.engines.options import Option

_IDLE = frozenset(  # as words of a text, because a list of them is read by nobody
    """
    host port served-model-name api-key trust-remote-code tokenizer tokenizer-mode chat-template tool-call-parser seed
    revision enable-auto-tool-choice reasoning-parser enable-reasoning disable-log-requests disable-log-stats log-level
    uvicorn-log-level download-dir load-format code-revision tokenizer-revision generation-config override-generation-config
    max-log-len ssl-keyfile ssl-certfile allowed-origins allowed-methods allowed-headers allow-credentials root-path
    response-role enable-request-id-headers disable-fastapi-docs enable-metrics metrics no-webui jinja temp temperature top-p
    top-k min-p repeat-penalty presence-penalty alias threads threads-batch prio mlock cont-batching slots log-disable
    log-verbosity verbose timeout n-predict t tb n s a v chat-template-file reasoning-format reasoning-budget
    no-display-prompt color interactive prompt file watchdog-timeout show-time-cost random-seed log-requests
    enable-cache-report model-impl hf-token disable-uvicorn-access-log enable-prompt-tokens-details return-tokens-as-token-ids
    collect-detailed-traces otlp-traces-endpoint
    """.split()  # noqa: SIM905
)


_FILES = (".sh", ".bash", ".yml", ".yaml", ".txt", ".service", ".ps1", ".bat", "modelfile", "dockerfile")


class Launched(msgspec.Struct, frozen=True, kw_only=True):
    """A launch whose flags are sorted: those that an engine's table or our words know, and what to tell of the others."""

    launch: Launch
    where: str


class Sorted(msgspec.Struct, frozen=True, kw_only=True):
    """``known``: flags as words; ``assumed`` and ``unmodelled``: what the answer must list of the rest."""

    known: tuple[str, ...]
    assumed: tuple[Assumption, ...] = ()
    unmodelled: tuple[Unmodelled, ...] = ()


def launched(model: str, flags: Sequence[str]) -> tuple[Launched, tuple[str, ...]] | None:
    """The launch that MODEL stands for and the flags left to be typed over it; None where MODEL is a model.

    Raises QuestionError for a file that starts no engine.
    """
    typed = bool(flags) and not flags[0].startswith("-")
    if not (typed or " " in model or model.lower().endswith(_FILES)):
        return None
    from vramcast.reading.serving.files import is_serving_file, read_serving_file
    from vramcast.reading.serving.launch import launch_of, read_script

    if is_serving_file(model):
        return Launched(launch=read_serving_file(model), where=model.rsplit("/", 1)[-1]), tuple(flags)
    if " " in model and (found := read_script(model)):
        return Launched(launch=found, where="the pasted line"), tuple(flags)
    if typed and (found := launch_of([model, *flags])):
        return Launched(launch=found, where="the pasted line"), ()
    return None


def sorted_flags(flags: Sequence[str], options: tuple[Option, ...], where: str) -> Sorted:
    """Flags of a launch by what is known of them."""
    from vramcast.asking.engine_line import FIELDS, OURS

    table = {flag: option for option in options for flag in (f"--{option.name.replace('_', '-')}", *option.flags)}
    known: list[str] = []
    idle: list[str] = []
    unread: list[str] = []
    waiting = list(flags)
    while waiting:
        word = waiting.pop(0)
        name = _name(word.partition("=")[0])
        option = table.get(name) or table.get(f"--{name.removeprefix('--no-')}")
        takes = "=" not in word and bool(waiting) and not _is_flag(waiting[0])
        values = [waiting.pop(0)] if takes and (option is None or option.kind != "bool" or waiting[0].lower() in _SWITCH) else []
        if option is not None or name in FIELDS or name in OURS:
            known += [word, *values]
        else:
            (idle if name.lstrip("-") in _IDLE else unread).append(name.lstrip("-"))
    assumed = (Assumption("no effect on memory", ", ".join(idle), f"{where}: address, logging, sampling"),) if idle else ()
    told = tuple(
        Unmodelled(f"the flag --{name} in {where}: no rule reads it, and what it changes is not counted") for name in unread
    )
    return Sorted(known=tuple(known), assumed=assumed, unmodelled=told)


_SWITCH = frozenset({"true", "false", "on", "off", "1", "0", "yes", "no"})


def _name(flag: str) -> str:
    return flag.replace("_", "-") if flag.startswith("--") else flag


def _is_flag(word: str) -> bool:
    """Whether a word is a flag rather than a value: -1 and -0.5 are values."""
    return word.startswith("-") and not word[1:].replace(".", "", 1).isdigit()
