"""``vramcast train``: memory of a training step, whether it fits, and how far batch and length can be pushed.

The flags that describe a step, one per word of the question, are shared with ``trace`` and ``measure``.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click

from vramcast.asking.training import TrainingWords, training_question
from vramcast.cli.help.grouped import CONTEXT, GroupedCommand, group

_step, _recipe, _card, _shape = group("The step"), group("Recipe"), group("Card and layout"), group("A model given by numbers")
_run = group("The whole run")

Decorator = Callable[[Any], Any]


def _options() -> Iterator[tuple[str, Decorator]]:
    """Every flag by the word that it fills, in the order of the help."""
    yield from _of_the_step()
    yield from _of_the_card()
    yield from _of_the_recipe()
    yield from _of_the_run()
    for name, about in _SHAPE.items():
        yield name, _shape(f"--{name.replace('_', '-')}", name, type=int, help=about)


_SHAPE = {
    "layers": "Blocks of the decoder.", "hidden": "Width of the residual stream.", "heads": "Heads of queries.",
    "kv_heads": "Heads of keys and values, where fewer share them.", "head_dim": "Width of a head, where not hidden / heads.",
    "ffn": "Width of the feed-forward.", "vocab": "Words of the vocabulary.", "experts": "Experts of a block.",
    "expert_ffn": "Width of one expert.",
}  # fmt: skip


def _of_the_step() -> Iterator[tuple[str, Decorator]]:
    yield "method", _step("--method", show_default="full", help="full, lora, qlora, dpo, grpo ...")
    yield "rank", _step("--rank", type=int, help="Adapter rank.")
    yield "dropout", _step("--dropout", type=float, help="Adapter dropout: above 0 its masks and inputs are kept.")
    yield "targets", _step("--targets", help="Adapted modules, by comma, or all-linear.")
    yield "micro_batch", _step("--micro-batch", show_default="1", metavar="N", help="Sequences per forward pass and rank.")
    yield "seq", _step("--seq", show_default="2048", metavar="TOKENS", help="Tokens per sequence: 4096, 8k = 8,000, 8K = 8,192.")
    yield "accumulate", _step("--accumulate", show_default="1", metavar="N", help="Micro-batches per optimizer step.")
    yield "eval_batch", _step("--eval-batch", type=int, metavar="N", help="Sequences per evaluation batch: adds that moment.")
    yield (
        "eval_kept",
        _step("--eval-kept", type=int, metavar="N", help="Batches of logits kept on the card (eval_accumulation_steps)."),
    )
    yield (
        "images",
        _step("--images", type=int, metavar="N", help="Images per sequence, for the vision tower; 0 = text alone."),
    )
    yield (
        "image_patches",
        _step("--image-patches", type=int, metavar="N", help="Patches of one image, where the model takes any size."),
    )
    yield (
        "saves",
        _step("--save", "saves", metavar="HOW", help="Adds the moment of a checkpoint: full, device, sharded, async."),
    )


def _of_the_run() -> Iterator[tuple[str, Decorator]]:
    yield "tokens", _run("--tokens", metavar="N", help="Tokens of the whole run, 15T or 400M: adds days, energy and cost.")
    yield "epochs", _run("--epochs", type=float, metavar="N", help="With --samples: passes over the data.")
    yield "samples", _run("--samples", metavar="N", help="Sequences of one epoch, each as long as --seq.")
    yield "gpu_hour_usd", _run("--gpu-hour-usd", type=float, metavar="USD", help="What an hour of one card costs you.")


def _of_the_card() -> Iterator[tuple[str, Decorator]]:
    yield "gpu", _card("--gpu", metavar="NAME[xN]", help="The card, and how many: 4090, A100-80Gx8, local.")
    yield "zero", _card("--zero", type=click.IntRange(0, 3), help="DeepSpeed ZeRO stage.")
    versions = click.Choice(["1", "2"])
    yield (
        "fsdp",
        _card("--fsdp", is_flag=False, flag_value="2", type=versions, help="PyTorch full sharding, version 1 or 2."),
    )
    yield "offload", _card("--offload", multiple=True, help="optimizer, parameters, activations (repeatable).")
    axes = {
        "tp": "Tensor parallel ranks.",
        "pp": "Pipeline stages.",
        "cp": "Context parallel ranks.",
        "ep": "Expert parallel ranks.",
        "vpp": "Virtual pipeline stages per rank.",
    }
    for name, about in axes.items():
        yield name, _card(f"--{name}", type=int, show_default="1", help=about)
    about = "Link between a machine's cards where it is not their own: pcie4, nvlink4, 64GB/s."
    yield "link", _card("--link", metavar="NAME", help=about)
    yield "sp", _card("--sp", is_flag=True, default=None, help="Megatron sequence parallelism.")
    yield "replicate", _card("--replicate", type=int, metavar="N", help="HSDP: replicas of the sharded model.")
    yield "shard", _card("--shard", type=int, metavar="N", help="HSDP: ranks that share one replica.")
    yield "hpz", _card("--hpz", type=int, metavar="N", help="ZeRO++: ranks that share a second copy of the weights.")


def _of_the_recipe() -> Iterator[tuple[str, Decorator]]:
    yield (
        "framework",
        _recipe("--framework", show_default="hf_trainer", metavar="NAME[==VERSION]", help="Whose recipe of defaults."),
    )
    yield "optimizer", _recipe("--optimizer", help="adamw, adamw_8bit, adafactor, muon, sgd ...")
    yield (
        "checkpointing",
        _recipe("--checkpointing", help="none, selective, full, offloaded, modules:NAME+..., uniform:N, block:N."),
    )
    yield "attention", _recipe("--attention", help="eager, sdpa, flash.")
    yield "loss", _recipe("--loss", help="eager, fused, chunked, linear.")
    yield "param_dtype", _recipe("--param-dtype", help="Type the trained weights are held in.")
    yield "compute_dtype", _recipe("--compute-dtype", help="Type of the matmuls.")
    yield "grad_dtype", _recipe("--grad-dtype", help="Type of the gradients.")
    yield "quant", _recipe("--quant", help="Scheme of frozen weights: nf4, gptq ...")
    yield "compile", _recipe("--compile/--no-compile", "compile", default=None, help="torch.compile.")
    text = "Override one part of the recipe (repeatable)."
    yield "settings", _recipe("--set", "settings", multiple=True, metavar="NAME=VALUE", help=text)


def training_flags(*, without: frozenset[str] = frozenset()) -> Decorator:
    """The flags on a command, less those of some words; MODEL and --from come with them."""

    def decorate(function: Any) -> Any:
        for name, option in reversed([*_options()]):
            if name not in without:
                function = option(function)
        about = (
            "A training file to start from: LLaMA-Factory, axolotl, TRL, DeepSpeed, Megatron ... (repeatable); typed flags win."
        )
        function = _step("--from", "files", multiple=True, metavar="FILE", help=about)(function)
        return click.argument("model", required=False)(function)

    return decorate


def words_of(given: dict[str, Any]) -> TrainingWords:
    """The words of the question among a command's parameters."""
    words: TrainingWords = {}
    words.update({name: given[name] for name in TrainingWords.__annotations__ if name in given})  # type: ignore[typeddict-item]
    if words.get("fsdp") is not None:
        words["fsdp"] = int(given["fsdp"])
    if words.get("sp") is False:
        words["sp"] = None
    return words


_output = group("Output")

_EPILOG = """\b
Examples:
  vramcast train meta-llama/Llama-3.1-8B --gpu H100 --method lora --rank 16 --seq 4096 --checkpointing full
  vramcast train Qwen/Qwen2.5-7B --gpu A100-80Gx8 --fsdp --micro-batch 2 --seq 8192
  vramcast train meta-llama/Llama-3.1-70B --gpu H100x64 --framework megatron --tp 8 --pp 4 --sp
  vramcast train meta-llama/Llama-3.1-8B --gpu H100x32 --framework torchtitan --replicate 4 --shard 8
  vramcast train meta-llama/Meta-Llama-3-8B --gpu 4090 --method lora --sweep rank=2,4,8 micro_batch=2,4,8,12
  vramcast train --from axolotl.yaml --gpu A100-80Gx8 --micro-batch 4
  vramcast train --layers 32 --hidden 4096 --heads 32 --ffn 11008 --vocab 32000 --framework megatron --gpu A100x8
"""


_THEIRS = "vramcast.foreign"


class TrainCommand(GroupedCommand):
    """A command that sets TRL's and the Trainer's settings apart before its own flags are read."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments less those of other programs, which are kept for the question."""
        own = {flag for option in self.params for flag in (*option.opts, *option.secondary_opts)}
        if any(word.startswith("--") and word.partition("=")[0] not in own for word in args):
            from vramcast.cli.foreign import set_apart

            args, ctx.meta[_THEIRS] = set_apart(args, own)
        return super().parse_args(ctx, args)


@click.command(cls=TrainCommand, epilog=_EPILOG, context_settings=CONTEXT)
@training_flags()
@click.argument("axes", nargs=-1, metavar="[NAME=V,V,...]...")
@_output("--sweep", "sweep", metavar="NAME=V,V,...", help="Answer a grid: rank=2,4,8 micro_batch=2,4,8,12.")
@_output("--plot", "plot", metavar="FILE", help="Draw the answer, or with --sweep the grid, to FILE (.png, .svg or .html).")
@_output("--explain", metavar="TERM", help="Open one term of the ledger down to its formula.")
@_output("--options", "list_options", is_flag=True, help="List every word (with WORD in MODEL's place: those with it).")
@_output("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(**given: Any) -> int:
    """Forecast the memory of a training step of MODEL, moment by moment.

    MODEL is as for `vramcast serve`, or a training file (.yaml, .toml, .sh) that names one; or give a shape (--layers,
    --hidden, --heads ...) instead.
    """
    if given["list_options"]:
        from vramcast.cli.pages.listing import show_training_words

        return show_training_words(given["model"] or "")
    model, axes = _model_and_axes(given)
    ask, words = partial(training_question, model, files=given["files"], text=_settings_of(given)), words_of(given)
    if axes:
        from vramcast.asking.grid import axes_of
        from vramcast.cli.sweep import show_sweep

        grid = axes_of(axes, TrainingWords.__annotations__)
        title = f"{model or 'the model of the files'}  {words.get('method') or ''}".strip()
        return show_sweep(ask, {**words}, grid, title=title, as_json=given["as_json"], plot=given["plot"])
    from vramcast.asking.asked import answer_training
    from vramcast.planning.verdict import exit_code

    forecast = answer_training(ask(**words))
    if given["plot"]:
        from vramcast.cli.plotted import plot_answer

        plot_answer(forecast, given["plot"])
    if given["as_json"]:
        from vramcast.cli.output import print_json

        print_json(forecast)
    elif given["explain"]:
        from vramcast.cli.pages.ledger import term_page

        term_page(forecast, given["explain"]).show()
    else:
        from vramcast.cli.pages.answer import training_page

        training_page(forecast).show()
    return exit_code(forecast.fit)


def _settings_of(given: dict[str, Any]) -> str | None:
    """Flags of TRL and the Trainer as the text of a file. Raises UsageError beside a file: there they belong."""
    theirs: dict[str, str] = click.get_current_context().meta.get(_THEIRS) or {}
    if not theirs:
        return None
    if given["files"]:
        raise click.UsageError(f"--{next(iter(theirs))} beside --from: write it into the file")
    from vramcast.cli.foreign import as_line

    return as_line(theirs, given["method"])


def _model_and_axes(given: dict[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    """MODEL and the axes of the grid, of which the first may stand where MODEL does when files or a shape tell the model."""
    if given["sweep"] is None:
        if given["axes"]:
            raise click.UsageError(f"unexpected argument {given['axes'][0]!r}: a grid starts with --sweep")
        return given["model"], ()
    model = given["model"]
    if model and "=" in model:
        return None, (given["sweep"], model, *given["axes"])
    return model, (given["sweep"], *given["axes"])
