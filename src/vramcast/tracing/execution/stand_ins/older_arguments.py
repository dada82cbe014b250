"""Arguments of earlier versions of transformers and TRL, passed on as they are called today, each with a note."""

import dataclasses
import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

from vramcast.tracing.execution.places import is_library
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.imported import when_imported
from vramcast.tracing.published.moved import moved
from vramcast.untrusted import parse_json


def install(session: Session) -> None:
    """Answer for TrainingArguments, the parser of command lines, Trainer and its methods, and TRL's SFTTrainer."""
    told = functools.partial(_tell, session)
    when_imported("transformers.training_args", lambda module: _built(module.TrainingArguments, told))
    when_imported("transformers.training_args_seq2seq", lambda module: _built(module.Seq2SeqTrainingArguments, told))
    when_imported("transformers.hf_argparser", lambda module: _parsed(module.HfArgumentParser, told))
    when_imported("transformers.trainer", lambda module: _trained(module.Trainer, told))
    when_imported("trl.trainer.sft_config", lambda module: _built(module.SFTConfig, told, _SFT_NOW))
    when_imported("trl.trainer.sft_trainer", lambda module: _tuned(module.SFTTrainer, told))


def _tell(session: Session, name: str, now: str) -> None:
    session.notes[f"{name} is an argument of an earlier version: {now}"] = None


def today(given: dict[str, Any], known: Iterable[str], told: Callable[[str, str], None]) -> dict[str, Any]:
    """Arguments of TrainingArguments by the names of today; those that ``known`` holds, and unknown ones, stay."""
    table, made = moved().arguments, dict[str, Any]()
    for name, value in given.items():
        if name in known:
            made[name] = value
        elif name in table.now:
            now = table.now[name]
            if name in table.value and value in (False, "False", "false"):
                continue
            made.setdefault(now, table.value.get(name, value))
            told(name, f"passed as {now}")
        elif name in table.fsdp:
            part = {table.fsdp[name]: [value] if name.endswith("to_wrap") else value}
            made["fsdp_config"] = _config(made.get("fsdp_config") or given.get("fsdp_config")) | part
            told(name, f"passed as fsdp_config's {table.fsdp[name]}")
        elif name in table.gone["names"]:
            told(name, "left out, no memory of a card hangs on it")
        else:
            made[name] = value
    return made


def _config(given: Any) -> dict[str, Any]:
    return given if isinstance(given, dict) else parse_json(given or "{}", "fsdp_config")


def _built(owner: Any, told: Callable[[str, str], None], also: dict[str, str] | None = None) -> None:
    """Let a class of arguments be made with those of before."""
    original = owner.__init__
    known = inspect.signature(original).parameters

    @functools.wraps(original)
    def make(self: Any, *args: Any, **options: Any) -> None:
        named = {(also or {}).get(name, name) if name not in known else name: value for name, value in options.items()}
        original(self, *args, **today(named, known, told))

    owner.__init__ = make


def _parsed(owner: Any, told: Callable[[str, str], None]) -> None:
    """Let a command line, and a table of arguments, have those of before."""
    of_line, of_table = owner.parse_args_into_dataclasses, owner.parse_dict

    def known(parser: Any) -> set[str] | None:
        """The fields of its classes, where one is of training; None otherwise."""
        fields = {field.name for kind in parser.dataclass_types for field in dataclasses.fields(kind)}
        return fields if "per_device_train_batch_size" in fields else None

    @functools.wraps(of_line)
    def parse_line(self: Any, args: Any = None, *more: Any, **options: Any) -> Any:
        fields = known(self)
        if fields is not None:
            args = line_today(sys.argv[1:] if args is None else list(args), fields, told)
        return of_line(self, args, *more, **options)

    @functools.wraps(of_table)
    def parse_table(self: Any, args: Any, *more: Any, **options: Any) -> Any:
        fields = known(self)
        return of_table(self, args if fields is None else today(args, fields, told), *more, **options)

    owner.parse_args_into_dataclasses, owner.parse_dict = parse_line, parse_table


def line_today(words: list[str], known: Iterable[str], told: Callable[[str, str], None]) -> list[str]:
    """The words of a command line with the names of today: a flag, and its values up to the next."""
    table, made = moved().arguments, list[str]()
    old = {*table.now, *table.fsdp, *table.gone["names"]}
    groups: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not groups:
            flag, sign, value = word.partition("=")
            groups.append([flag, value] if sign else [word])
        else:
            groups[-1].append(word)
    for flag, *values in groups:
        name = flag.removeprefix("--").replace("-", "_")
        if not flag.startswith("--") or name in known or name not in old:
            made += [flag, *values]
            continue
        for now, value in today({name: values[0] if values else "True"}, known, told).items():
            made += [f"--{now}", value if isinstance(value, str) else json.dumps(value)]
    return made


# Methods that a script's own Trainer may define with fewer parameters than they are called with today.
_CALLED_WITH_MORE = ("compute_loss", "training_step", "log", "_save_checkpoint", "_get_train_sampler", "create_scheduler")


def _trained(owner: Any, told: Callable[[str, str], None]) -> None:
    """Let a Trainer have a tokenizer, and methods with the parameters of before."""
    original = owner.__init__
    known = inspect.signature(original).parameters

    @functools.wraps(original)
    def make(self: Any, *args: Any, **options: Any) -> None:
        if "tokenizer" in options and "tokenizer" not in known:
            options.setdefault("processing_class", options.pop("tokenizer"))
            told("Trainer's tokenizer", "passed as processing_class")
        for name in _CALLED_WITH_MORE:
            _with_fewer(self, name, told)
        original(self, *args, **options)
        if not hasattr(self, "tokenizer"):
            self.tokenizer = getattr(self, "processing_class", None)

    owner.__init__ = make


def _with_fewer(trainer: Any, name: str, told: Callable[[str, str], None]) -> None:
    """Call a method of the script's own class with the parameters that it has."""
    method = getattr(trainer, name, None)
    code = getattr(getattr(method, "__func__", None), "__code__", None)
    if method is None or code is None or is_library(code.co_filename):
        return
    parameters = inspect.signature(method).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return
    most = len(parameters) if inspect.Parameter.VAR_POSITIONAL not in kinds else None

    @functools.wraps(method)
    def call(*args: Any, **options: Any) -> Any:
        fewer = {key: value for key, value in options.items() if key in parameters}
        if len(fewer) < len(options) or (most is not None and len(args) > most):
            told(f"{name} without {', '.join(options.keys() - fewer) or 'a later argument'}", "called with those that it has")
        return method(*args[:most], **fewer)

    setattr(trainer, name, call)


_SFT_NOW = {"max_seq_length": "max_length"}
_SFT_GONE = frozenset({"dataset_batch_size", "num_of_sequences", "chars_per_token", "infinite"})


def _tuned(owner: Any, told: Callable[[str, str], None]) -> None:
    """Let SFTTrainer have what is SFTConfig's since TRL 0.12 and 0.13."""
    original = owner.__init__
    known = inspect.signature(original).parameters

    @functools.wraps(original)
    def make(self: Any, *args: Any, **options: Any) -> None:
        from trl import SFTConfig  # type: ignore[import-not-found]

        if "tokenizer" in options and "tokenizer" not in known:
            options.setdefault("processing_class", options.pop("tokenizer"))
            told("SFTTrainer's tokenizer", "passed as processing_class")
        fields = {field.name for field in dataclasses.fields(SFTConfig)}
        extra = {name: options.pop(name) for name in list(options) if name not in known}
        moved_on = {_SFT_NOW.get(name, name): value for name, value in extra.items() if name not in _SFT_GONE}
        wrong = next((name for name in moved_on if name not in fields), None)
        if wrong is not None:
            raise TypeError(f"SFTTrainer.__init__() got an unexpected keyword argument {wrong!r}")
        if moved_on:
            options["args"] = _sft_config(SFTConfig, options.get("args"), fields, moved_on)
            told(f"SFTTrainer's {', '.join(extra)}", "passed in SFTConfig")
        original(self, *args, **options)

    owner.__init__ = make


def _sft_config(kind: Any, given: Any, fields: set[str], more: dict[str, Any]) -> Any:
    """The arguments of a run as SFTConfig, with those that were the trainer's."""
    if isinstance(given, kind):
        for name, value in more.items():
            setattr(given, name, value)
        return given
    known = (
        {name: value for name, value in given.to_dict().items() if name in fields} if given is not None else {"output_dir": "out"}
    )
    if given is not None:
        known["hub_token"] = given.hub_token  # which to_dict() leaves out
    return kind(**known | {name: value for name, value in more.items() if value is not None})
