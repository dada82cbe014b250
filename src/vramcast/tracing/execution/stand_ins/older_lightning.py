"""Lightning's interface before 2.0, in terms of today's: cards by ``gpus``, arguments of a command line, hooks with more to take.

Source: the migration guides of 2.0 (docs/source-pytorch/upgrade/from_1_9.rst and before), trainer.py and argparse.py of 1.4.
"""

import ast
import functools
import inspect
from argparse import ArgumentParser, Namespace
from typing import Any

from vramcast.tracing.execution.places import is_library
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.imported import when_imported
from vramcast.tracing.execution.stand_ins.older_calls import Told, teller
from vramcast.tracing.published.moved import moved

_HOMES = ("pytorch_lightning", "lightning.pytorch")
_STRATEGIES = {"ddp_cpu": "ddp", "ddp": "ddp", "ddp_spawn": "ddp_spawn", "deepspeed": "deepspeed"}
_ONE_PROCESS = ("dp", "ddp2")  # a batch is cut over the cards of one process
_ENDS = ("training_epoch_end", "validation_epoch_end", "test_epoch_end")
_BATCH_HOOKS = tuple(f"on_{stage}_batch_{end}" for stage in ("train", "validation", "test") for end in ("start", "end"))


def install(session: Session) -> None:
    """Answer for Trainer and LightningModule of both packages."""
    told = teller(session)
    for home in _HOMES:
        when_imported(f"{home}.trainer.trainer", lambda module: _trainer(module.Trainer, told))
        when_imported(f"{home}.core.mixins.hparams_mixin", lambda module: _assignable(module.HyperparametersMixin))


def cards_today(options: dict[str, Any], told: Told) -> dict[str, Any]:
    """A trainer's arguments with its cards as ``accelerator``, ``devices`` and ``strategy``."""
    made = {key: value for key, value in options.items() if key not in {"gpus", "distributed_backend", "num_processes"}}
    gpus = options.get("gpus")
    if gpus is not None:
        made["devices"] = _devices(gpus) or 1
    given = options.get("distributed_backend") or made.get("accelerator")
    if given in _ONE_PROCESS:
        _refuse_many(given, made.get("devices", 1))
    if given in _STRATEGIES or given in _ONE_PROCESS:
        made["strategy"] = _STRATEGIES.get(given, "auto")
        made.pop("accelerator", None)
        told(f"Trainer's {given!r} as an accelerator", f"passed as strategy {made['strategy']}")
    elif options.get("distributed_backend"):
        raise ValueError(f"Trainer's distributed_backend {given!r} left Lightning 2: name a strategy ({', '.join(_STRATEGIES)})")
    if gpus is not None:
        made["accelerator"] = "gpu" if _devices(gpus) else "cpu"
        told("Trainer's gpus", f"passed as devices {made['devices']}")
    return made


def _refuse_many(given: str, devices: Any) -> None:
    """DataParallel over several cards cuts one batch; Lightning 2 has nothing that does."""
    if devices not in (1, [0], [1], "1"):
        raise ValueError(
            f"Trainer's {given!r} over devices {devices} left Lightning 2: trace one card with a card's part of the batch"
        )


def _devices(gpus: Any) -> Any:
    """``0,`` and ``0,1`` are the cards of these numbers, a number is so many."""
    if isinstance(gpus, str) and "," in gpus:
        return [int(number) for number in gpus.split(",") if number.strip()]
    return int(gpus) if isinstance(gpus, str) else gpus


def _trainer(owner: Any, told: Told) -> None:
    original, fit = owner.__init__, owner.fit
    known = inspect.signature(original).parameters

    @functools.wraps(original)
    def make(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **cards_today(options, told))

    @functools.wraps(fit)
    def fitted(self: Any, model: Any, *args: Any, **options: Any) -> Any:
        for holder in (model, *self.callbacks):
            _hooks(holder, told)
        return fit(self, model, *args, **options)

    owner.__init__, owner.fit = make, fitted
    if not hasattr(owner, "lr_schedulers"):
        owner.lr_schedulers = property(lambda self: [{"scheduler": each.scheduler} for each in self.lr_scheduler_configs])
    if not hasattr(owner, "add_argparse_args"):
        call = moved().calls["pytorch_lightning.trainer.trainer:Trainer"]
        names = [*(set(known) - {"self"}), "gpus", "distributed_backend", *call.now, *call.gone]
        owner.add_argparse_args = staticmethod(functools.partial(_add_arguments, names))
        owner.from_argparse_args = classmethod(functools.partial(_of_arguments, names))


def _add_arguments(names: list[str], parent_parser: ArgumentParser, **_: Any) -> ArgumentParser:
    """What ``Trainer.add_argparse_args`` was: a flag for every argument that the parser does not have."""
    taken = {action.dest for action in parent_parser._actions}
    for name in sorted(set(names) - taken):
        parent_parser.add_argument(f"--{name}", default=None, type=_typed)
    return parent_parser


def _typed(text: str) -> Any:
    """A flag's number, truth value or None; any other text, also a list of cards, as it is."""
    try:
        found = ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
    except (ValueError, SyntaxError):
        return text
    return found if found is None or isinstance(found, int | float) else text


def _of_arguments(names: list[str], owner: Any, args: Any, **options: Any) -> Any:
    """What ``Trainer.from_argparse_args`` was."""
    given = vars(args) if isinstance(args, Namespace) else dict(args)
    return owner(**{name: value for name, value in given.items() if name in names and value is not None} | options)


def _hooks(holder: Any, told: Told) -> None:
    """Let hooks be called without the number of the loader, and leave out those that got an epoch's outputs."""
    for name in _ENDS:
        if callable(getattr(holder, name, None)) and not is_library(getattr(holder, name).__code__.co_filename):
            object.__setattr__(holder, name, None)
            told(f"{type(holder).__name__}.{name}", "not called, and a step's outputs are not kept for it")
    _of_one_optimizer(holder, told)
    for name in _BATCH_HOOKS:
        method: Any = getattr(holder, name, None)
        code = getattr(getattr(method, "__func__", None), "__code__", None)
        if code is None or is_library(code.co_filename):
            continue
        last = list(inspect.signature(method).parameters.values())[-1:]
        if last and last[0].name in {"dataloader_idx", "unused"} and last[0].default is inspect.Parameter.empty:
            object.__setattr__(holder, name, functools.partial(_with_loader, method, last[0].name))


def _of_one_optimizer(holder: Any, told: Told) -> None:
    """A step that may be given the number of its optimizer, as 1 did, is that of the first; with several, 2 says what to do."""
    for name in ("training_step", "validation_step"):
        step = getattr(holder, name, None)
        code = getattr(getattr(step, "__func__", None), "__code__", None)
        if step is None or code is None or is_library(code.co_filename):
            continue
        found = inspect.signature(step).parameters.get("optimizer_idx")
        if found is not None and found.default == 0:
            object.__setattr__(holder, name, _without_number(step))
            told(f"{type(holder).__name__}.{name}'s optimizer_idx", "not given, which is 0")


def _without_number(step: Any) -> Any:
    def call(batch: Any, batch_idx: int) -> Any:
        return step(batch, batch_idx)

    return call


def _with_loader(method: Any, name: str, *args: Any, **options: Any) -> Any:
    most = len(inspect.signature(method).parameters)
    return method(*args, **options) if len(args) == most or name in options else method(*args, **options | {name: 0})


def _assignable(owner: Any) -> None:
    """``self.hparams = ...`` as before 1.0 (core/lightning.py of 0.9)."""

    def assign(module: Any, value: Any) -> None:
        module._set_hparams(vars(value) if isinstance(value, Namespace) else value)

    owner.hparams = owner.hparams.setter(assign)
