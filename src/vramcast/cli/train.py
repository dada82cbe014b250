"""``vramcast train``: memory of a training step, whether it fits, and how far batch and length can be pushed."""

from typing import Any

import click

from vramcast.cli.layout import layout_of, layout_options
from vramcast.workload import Adapter, Training

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
_TRAINING_FILES = (".yaml", ".yml", ".toml", ".sh")
_SHAPE = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "experts", "expert_ffn")


def _shape_options(function: Any) -> Any:
    for name in reversed(_SHAPE):
        flag = f"--{name.replace('_', '-')}"
        function = click.option(flag, name, type=int, help=f"A model given by numbers alone: {name.replace('_', ' ')}.")(function)
    return function


@click.command(epilog=_EPILOG)
@click.argument("model", required=False)
@click.argument("axes", nargs=-1, metavar="[NAME=V,V,...]...")
@click.option(
    "--from", "sources", multiple=True, metavar="FILE",
    help="A training file to start from: LLaMA-Factory, axolotl, TRL, DeepSpeed, Megatron ... (repeatable); typed flags win.",
)  # fmt: skip
@click.option("--gpu", metavar="NAME[xN]", help="The card, and how many: 4090, A100-80Gx8, local.")
@click.option("--framework", default="hf_trainer", show_default=True, metavar="NAME[==VERSION]", help="Whose recipe of defaults.")
@click.option("--method", default="full", show_default=True, help="full, lora, qlora, dpo, grpo ...")
@click.option("--rank", type=int, help="Adapter rank.")
@click.option("--targets", help="Adapted modules, by comma, or all-linear.")
@click.option("--optimizer", help="adamw, adamw_8bit, adafactor, muon, sgd ...")
@click.option("--micro-batch", default="1", show_default=True, metavar="N", help="Sequences per forward pass and rank.")
@click.option("--seq", default="2048", show_default=True, metavar="TOKENS", help="Tokens per sequence.")
@click.option("--accumulate", default="1", show_default=True, metavar="N", help="Micro-batches per optimizer step.")
@click.option("--checkpointing", help="none, selective, full, offloaded, modules:NAME+..., uniform:N, block:N.")
@click.option("--attention", help="eager, sdpa, flash.")
@click.option("--loss", help="eager, fused, chunked, linear.")
@click.option("--zero", type=click.IntRange(0, 3), help="DeepSpeed ZeRO stage.")
@click.option(
    "--fsdp", is_flag=False, flag_value="2", type=click.Choice(["1", "2"]), help="PyTorch full sharding, version 1 or 2."
)
@click.option("--offload", multiple=True, help="optimizer, parameters, activations (repeatable).")
@click.option("--eval-batch", type=int, metavar="N", help="Sequences per evaluation batch: adds that moment.")
@click.option("--eval-kept", type=int, metavar="N", help="Batches of logits kept on the card (eval_accumulation_steps).")
@click.option("--images", type=int, metavar="N", help="Images per sequence, for the vision tower; 0 = text alone.")
@click.option("--image-patches", type=int, metavar="N", help="Patches of one image, where the model takes any size.")
@click.option("--save", "saves", metavar="HOW", help="Adds the moment of a checkpoint: full, device, sharded, async.")
@layout_options
@click.option("--param-dtype", help="Type the trained weights are held in.")
@click.option("--compute-dtype", help="Type of the matmuls.")
@click.option("--grad-dtype", help="Type of the gradients.")
@click.option("--quant", help="Scheme of frozen weights: nf4, gptq ...")
@click.option("--compile/--no-compile", "compiled", default=None, help="torch.compile.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Override one part of the recipe (repeatable).")
@click.option("--sweep", "sweep", metavar="NAME=V,V,...", help="Answer a grid: rank=2,4,8 micro_batch=2,4,8,12.")
@click.option("--plot", "plot", metavar="FILE", help="With --sweep: draw it to FILE (.png, .svg or .html).")
@click.option("--explain", metavar="TERM", help="Open one term of the ledger down to its formula.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@_shape_options
def command(**given: Any) -> int:
    """Forecast the memory of a training step of MODEL, moment by moment.

    MODEL is as for `vramcast serve`, or a training file (.yaml, .toml, .sh) that names one; or give a shape (--layers,
    --hidden, --heads ...) instead.
    """
    if given["sweep"] is None and given["axes"]:
        raise click.UsageError(f"unexpected argument {given['axes'][0]!r}: a grid starts with --sweep")
    given = _with_files(given)
    question, model = question_of(given)
    if given["sweep"] is not None:
        from vramcast.cli.sweep import show_sweep

        axes = (given["sweep"], *([given["model"]] if "=" in (given["model"] or "") else []), *given["axes"])
        return show_sweep(question, axes, as_json=given["as_json"], plot=given["plot"])
    from vramcast.cli.serve import card_assumptions
    from vramcast.planning.training import forecast_training

    files = given.get("files")
    forecast = forecast_training(
        question,
        model=model,
        assumed=(*card_assumptions(given["gpu"]), *(files.assumed() if files else ())),
        unmodelled=files.unmodelled() if files else (),
    )
    if given["as_json"]:
        from vramcast.cli.output import print_json

        print_json(forecast)
    elif given["explain"]:
        from vramcast.cli.drawing import term_page

        term_page(forecast, given["explain"]).show()
    else:
        from vramcast.cli.drawing import training_page

        training_page(forecast).show()
    return 1 if forecast.fit.verdict == "no" else 0


def question_of(given: dict[str, Any]) -> tuple[Training, Any]:
    """The flags as a question, and the model when it was given by numbers. Raises QuestionError for what cannot be."""
    from vramcast.cli.serve import named_cards
    from vramcast.errors import QuestionError

    given = _with_files(given)
    gpu, gpus = named_cards(given["gpu"])
    layout, world = layout_of(given, gpus if gpus > 1 else given.get("file_gpus") or gpus)
    name, _, version = given["framework"].partition("==")
    model = _shaped(given)
    if model is None and not given["model"]:
        raise QuestionError(
            "no model: give an id, a path, or a shape (--layers, --hidden, --heads, --ffn, --vocab)"
            + ("; the files name none" if given.get("files") else "")
        )
    question = Training(
        model=given["model"] or model.id,
        gpu=gpu,
        gpus=world,
        framework=name,
        framework_version=version or None,
        method=given["method"],
        adapter=_adapter(given),
        parallel=layout,
        offload=tuple(given["offload"]),
        zero=given["zero"],
        fsdp=int(given["fsdp"]) if given["fsdp"] else None,
        compile=given["compiled"],
        options=_read_options(given) | _moments(given) | _images(given) | _settings(given["settings"]),
        micro_batch=_count(given, "micro_batch"),
        seq=_count(given, "seq"),
        accumulate=_accumulate(given, layout.dp),
        **{
            k: given[k]
            for k in ("optimizer", "checkpointing", "attention", "loss", "param_dtype", "compute_dtype", "grad_dtype", "quant")
        },
    )
    return question, model


def _with_files(given: dict[str, Any]) -> dict[str, Any]:
    """The parameters, with what files say under the flags that were typed; a training file may stand where the model does."""
    if "files" in given:
        return given
    sources = given.get("sources") or ()
    if (given["model"] or "").endswith(_TRAINING_FILES):
        sources, given = (*sources, given["model"]), {**given, "model": None}
    if not sources:
        return given
    from vramcast.cli.train_files import under_flags
    from vramcast.reading.training.files import read_training_files

    return under_flags(given, read_training_files(sources))


def _count(given: dict[str, Any], name: str) -> int:
    """The number of that flag, 128k and the like included; a negative one is left to the question to refuse."""
    from vramcast.units import parse_count

    if given[name].lstrip("-").isdigit():
        return int(given[name])
    return parse_count(given[name], what=f"--{name.replace('_', '-')}")


def _accumulate(given: dict[str, Any], ranks: int) -> int:
    """As typed or read; or what a global batch leaves after the micro-batches of every data-parallel rank."""
    whole = given.get("global_batch")
    return max(1, int(whole) // (_count(given, "micro_batch") * ranks)) if whole else _count(given, "accumulate")


def _adapter(given: dict[str, Any]) -> Adapter | None:
    if given.get("files"):
        from vramcast.cli.train_files import adapter_of

        return adapter_of(given, given["files"])
    if given["rank"] is None and given["targets"] is None:
        return None
    targets = tuple(given["targets"].split(",")) if given["targets"] else ("all-linear",)
    return Adapter(rank=8 if given["rank"] is None else given["rank"], targets=targets)


MOMENTS = ("eval_batch", "eval_kept", "saves")
IMAGES = ("images", "image_patches")


def _moments(given: dict[str, Any]) -> dict[str, Any]:
    """Moments beside the step that were asked for. Raises QuestionError for a count below one."""
    from vramcast.errors import QuestionError

    asked = {name: given[name] for name in MOMENTS if given.get(name) is not None}
    for name, value in asked.items():
        if name != "saves" and value < 1:
            raise QuestionError(f"{name} is {value}: expected at least 1")
    return asked


def _images(given: dict[str, Any]) -> dict[str, Any]:
    """The images of a sequence that were asked for; the recipe checks their numbers."""
    return {name: given[name] for name in IMAGES if given.get(name) is not None}


def _read_options(given: dict[str, Any]) -> dict[str, Any]:
    """Parts of the recipe that the files decide."""
    files = given.get("files")
    return {name: value for name, value in files.group("options").items() if value is not None} if files else {}


def _settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    import yaml

    from vramcast.errors import QuestionError

    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise QuestionError(f"--set {pair[:60]!r} is not NAME=VALUE")
        settings[name] = yaml.safe_load(value)
    return settings


def _shaped(given: dict[str, Any]) -> Any:
    numbers = {name: given[name] for name in _SHAPE if given[name] is not None}
    if not numbers:
        return None
    from vramcast.errors import QuestionError
    from vramcast.training.shape import Shape, shape_model

    missing = [f"--{name}" for name in ("layers", "hidden", "heads") if name not in numbers]
    if missing:
        raise QuestionError(f"a model given by numbers needs {', '.join(missing)} too")
    files = given.get("files")
    more = {name: v for name, v in files.group("shape").items() if name not in _SHAPE} if files else {}
    return shape_model(Shape(**numbers, **more, name=f"{numbers['layers']} layers x {numbers['hidden']}"))
