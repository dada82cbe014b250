"""Arguments of earlier versions of transformers and TRL, passed on as they are called today, each with a note."""

import dataclasses
import functools
import inspect
import json
import sys
from collections.abc import Container, Mapping
from typing import Any

from vramcast.tracing.execution.places import is_library
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.imported import when_imported
from vramcast.tracing.execution.stand_ins.older_calls import Told, teller
from vramcast.tracing.published.moved import moved
from vramcast.untrusted import parse_json

_TRAINER = "transformers.trainer:Trainer"
_SFT_CONFIG, _SFT_TRAINER = "trl.trainer.sft_config:SFTConfig", "trl.trainer.sft_trainer:SFTTrainer"


def install(session: Session) -> None:
    """Answer for TrainingArguments, the parser of command lines, Trainer and its methods, and TRL's SFTTrainer."""
    told = teller(session)
    when_imported("transformers.training_args", lambda module: _built(module.TrainingArguments, told))
    when_imported("transformers.training_args", lambda module: _readable(module.TrainingArguments))
    when_imported("transformers.training_args", lambda module: _derived(module.TrainingArguments, told))
    when_imported("transformers.training_args_seq2seq", lambda module: _built(module.Seq2SeqTrainingArguments, told))
    when_imported("transformers.hf_argparser", lambda module: _parsed(module.HfArgumentParser, told))
    when_imported("transformers.trainer", lambda module: _trained(module.Trainer, told))
    when_imported("transformers.configuration_utils", lambda module: _scaled(module.PreTrainedConfig, told))
    when_imported("trl.scripts.utils", lambda module: _configured(module.TrlParser, told))
    when_imported("trl.trainer.sft_config", lambda module: _built(module.SFTConfig, told, moved().calls[_SFT_CONFIG].now))
    when_imported("trl.trainer.sft_trainer", lambda module: _tuned(module.SFTTrainer, told))


def today(given: dict[str, Any], known: Container[str | None], told: Told) -> dict[str, Any]:
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
        elif table.trl.get(name) in known:
            made.setdefault(table.trl[name], value)
            told(name, f"passed as {table.trl[name]}")
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


def _built(owner: Any, told: Told, also: dict[str, str] | None = None) -> None:
    """Let a class of arguments be made with those of before."""
    original = owner.__init__
    known = inspect.signature(original).parameters

    @functools.wraps(original)
    def make(self: Any, *args: Any, **options: Any) -> None:
        named = {(also or {}).get(name, name) if name not in known else name: value for name, value in options.items()}
        original(self, *args, **today(named, known, told))

    owner.__init__ = make


def _derived(owner: Any, told: Told) -> None:
    """The same of classes that derive from it later: a dataclass writes an ``__init__`` of its own for each."""
    library: Any = dataclasses
    original = library._process_class

    @functools.wraps(original)
    def process(cls: Any, *args: Any, **options: Any) -> Any:
        made = original(cls, *args, **options)
        if isinstance(made, type) and issubclass(made, owner) and "__init__" in vars(made):
            _built(made, told)
        return made

    library._process_class = process


def _readable(owner: Any) -> None:
    """Let a script read its arguments by the names of before, but those that mean another thing today."""
    table = moved().arguments
    for before, now in table.now.items():
        if before not in table.value and not hasattr(owner, before):
            setattr(owner, before, _Today(now))


class _Today:
    """An attribute that is read by its name of today; a derived class may have one of its own under the name of before."""

    def __init__(self, now: str) -> None:
        self._now = now

    def __get__(self, arguments: Any, owner: Any = None) -> Any:
        return self if arguments is None else getattr(arguments, self._now)


def _parsed(owner: Any, told: Told) -> None:
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


def _configured(owner: Any, told: Told) -> None:
    """Let the file of a run that TRL's parser reads have them as well."""
    original = owner.set_defaults_with_config

    @functools.wraps(original)
    def set_defaults(self: Any, **options: Any) -> Any:
        fields = {field.name for kind in self.dataclass_types for field in dataclasses.fields(kind)}
        return original(self, **today(options, fields, told))

    owner.set_defaults_with_config = set_defaults


def line_today(words: list[str], known: Container[str | None], told: Told) -> list[str]:
    """The words of a command line with the names of today: a flag, and its values up to the next."""
    table, made = moved().arguments, list[str]()
    old = {*table.now, *table.fsdp, *table.trl, *table.gone["names"]}
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


def _with_processing_class(options: Mapping[str, Any], known: Mapping[str, Any], name: str, told: Told) -> dict[str, Any]:
    """A trainer's arguments with its tokenizer called as it is since transformers 5 and TRL 0.16."""
    if "tokenizer" not in options or "tokenizer" in known:
        return dict(options)
    told(f"{name}'s tokenizer", "passed as processing_class")
    return {"processing_class": options["tokenizer"]} | {key: value for key, value in options.items() if key != "tokenizer"}


def _trained(owner: Any, told: Told) -> None:
    """Let a Trainer have a tokenizer, and methods with the parameters of before."""
    original = owner.__init__
    known = inspect.signature(original).parameters

    @functools.wraps(original)
    def make(self: Any, *args: Any, **options: Any) -> None:
        options = _with_processing_class(options, known, "Trainer", told)
        for name in moved().called_with_more[_TRAINER]:
            _with_fewer(self, name, told)
        original(self, *args, **options)
        if not hasattr(self, "tokenizer"):
            self.tokenizer = getattr(self, "processing_class", None)

    owner.__init__ = make


def _scaled(owner: Any, told: Told) -> None:
    """Let ``config.rope_scaling = {...}`` leave the base of the rotations as it is; 5.23 forgets it with what is assigned."""
    given = getattr(owner, "rope_scaling", None)
    if not isinstance(given, property) or (assigned := given.fset) is None:  # a transformers without it forgets nothing
        return

    def assign(config: Any, value: Any) -> None:
        before = getattr(config, "rope_parameters", None) or {}
        if isinstance(value, dict) and "rope_theta" not in value and "rope_theta" in before:
            value = {"rope_theta": before["rope_theta"], **value}
            told("rope_scaling of a config", "its rope_theta stays as it was")
        assigned(config, value)

    owner.rope_scaling = given.setter(assign)


def _with_fewer(trainer: Any, name: str, told: Told) -> None:
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


def _tuned(owner: Any, told: Told) -> None:
    """Let SFTTrainer have what is SFTConfig's since TRL 0.12 and 0.13."""
    original = owner.__init__
    known = inspect.signature(original).parameters

    @functools.wraps(original)
    def make(self: Any, *args: Any, **options: Any) -> None:
        from trl import SFTConfig  # type: ignore[import-not-found]

        options = _with_processing_class(options, known, "SFTTrainer", told)
        fields = {field.name for field in dataclasses.fields(SFTConfig)}
        extra = {name: options.pop(name) for name in list(options) if name not in known}
        call = moved().calls[_SFT_TRAINER]
        moved_on = {call.now.get(name, name): value for name, value in extra.items() if name not in call.gone}
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
