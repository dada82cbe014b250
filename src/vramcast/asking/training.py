"""A training question from words and files: names, suffix strings, the settings of training files under what was typed."""

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from vramcast.asking.asked import IMAGES, Asked, LayoutWords, check_words, count_of, flag_of, layout_of, named_cards
from vramcast.asking.links import link_of
from vramcast.errors import QuestionError, VramcastError
from vramcast.ledger import Assumption
from vramcast.units import dtype_name
from vramcast.workload import Adapter, Training

if TYPE_CHECKING:
    from vramcast.models.inventory import Model
    from vramcast.reading.training.settings import Settings

# Files that may stand where the model does; a .json there is a model's own configuration.
_ENDINGS = (".yaml", ".yml", ".toml", ".sh", ".py", ".ipynb", ".sbatch", ".slurm")
MOMENTS = ("eval_batch", "eval_kept", "saves")
_TEXTS = ("method", "optimizer", "checkpointing", "attention", "loss", "param_dtype", "compute_dtype", "grad_dtype", "quant")
_NUMBERS = ("zero", "fsdp", "compile")


class ShapeWords(TypedDict, total=False):
    """A model given by numbers alone."""

    layers: int | None
    hidden: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    ffn: int | None
    vocab: int | None
    experts: int | None
    expert_ffn: int | None


class TrainingWords(LayoutWords, ShapeWords, total=False):
    """What can be asked about training, in Python and as ``--words`` of ``vramcast train``; None leaves it to the framework.

    ``targets``: adapted modules. ``eval_batch``, ``eval_kept`` and ``saves`` add moments beside the step. ``settings`` overrides
    parts of the recipe (``--set NAME=VALUE``). ``tokens``, or ``epochs``
    over ``samples``, are the whole run's, for its days and its cost.
    """

    gpu: str | None
    framework: str | None
    method: str | None
    rank: int | None
    dropout: float | None
    targets: str | Sequence[str] | None
    optimizer: str | None
    micro_batch: int | str | None
    seq: int | str | None
    accumulate: int | str | None
    checkpointing: str | None
    attention: str | None
    loss: str | None
    zero: int | None
    fsdp: int | None
    offload: Sequence[str] | None
    eval_batch: int | None
    eval_kept: int | None
    images: int | None
    image_patches: int | None
    saves: str | None
    param_dtype: str | None
    compute_dtype: str | None
    grad_dtype: str | None
    quant: str | None
    compile: bool | None
    tokens: int | str | None
    epochs: float | None
    samples: int | str | None
    gpu_hour_usd: float | None
    link: str | None
    settings: Mapping[str, Any] | Sequence[str] | None


def training_question(
    model: str | None = None,
    *,
    files: Sequence[str | PathLike[str]] = (),
    text: str | None = None,
    **words: Unpack[TrainingWords],
) -> Asked[Training]:
    """The question that these words ask, on top of what training files say.

    ``model``: as for ``read_model``, or a training file that names one; without it the files tell, or a shape (``layers``,
    ``hidden``, ``heads`` ...). ``text``: a configuration, program or command line itself, in place of files.
    Raises QuestionError for a word, number, name or file that cannot be.
    """
    check_words(words, TrainingWords.__annotations__, what="training word")
    typed: dict[str, Any] = {name: value for name, value in words.items() if value is not None and value != ()}
    if model is not None and (model == "-" or model.endswith(_ENDINGS)):
        files = (*files, model)
    elif model is not None:
        typed["model"] = model
    cards = named_cards(typed.get("gpu"))
    settings = _read(files, cards.capability) if text is None else _read_text(text, cards.capability)
    _check_types(typed)
    question, shaped = _question(typed, settings, cards.gpu, cards.count)
    shortened = _within_positions(question, shaped, typed) if settings is None else None
    longer = _beyond_positions(question, shaped) if settings is not None and "seq" not in typed else None
    return Asked(
        question=shortened or longer or question,
        model=shaped,
        assumed=(
            *cards.assumed,
            *_defaults(question, typed),
            *_positions(shortened),
            *_extended(longer),
            *(settings.assumed() if settings else ()),
        ),
        unmodelled=settings.unmodelled() if settings else (),
        told=settings.summary() if settings and shaped is None and "model" not in typed else "",
    )


def _within_positions(question: Training, shaped: "Model | None", typed: Mapping[str, Any]) -> Training | None:
    """The question with as long a sequence as the model has positions, where nobody said how long and the usual is too long."""
    if "seq" in typed or question.seq != Training(model="").seq or "extends_positions" in question.options:
        return None
    from vramcast.models.reading import read_model

    try:
        positions = (shaped or read_model(question.model)).positions
    except VramcastError:  # said where the question is answered
        return None
    return msgspec.structs.replace(question, seq=positions) if 0 < positions < question.seq else None


def _beyond_positions(question: Training, shaped: "Model | None") -> Training | None:
    """The question of a file whose sequence is longer than the model's positions, where these are rotary and reach on."""
    if "extends_positions" in question.options:
        return None
    from vramcast.models.reading import read_model

    try:
        model = shaped or read_model(question.model)
    except VramcastError:  # said where the question is answered
        return None
    learned = any(tensor.role == "position" for tensor in model.tensors)
    if learned or not 0 < model.positions < question.seq:
        return None
    return msgspec.structs.replace(question, options={**question.options, "extends_positions": True})


def _extended(longer: Training | None) -> tuple[Assumption, ...]:
    because = "the file's sequence is longer than the model's positions: rotary ones reach on, past what it was trained for"
    return (Assumption("extends_positions", True, because),) if longer else ()


def _positions(shortened: Training | None) -> tuple[Assumption, ...]:
    return (Assumption("seq", shortened.seq, "positions of the model, where nothing was said"),) if shortened else ()


def _check_types(typed: Mapping[str, Any]) -> None:
    """Raises QuestionError for trained weights, gradients or matmuls in whole numbers, which no optimizer can step."""
    for name in ("param_dtype", "compute_dtype", "grad_dtype"):
        found = dtype_name(str(typed.get(name, "")))
        if found.startswith(("int", "uint", "nf4", "fp4", "q4", "q8")):
            raise QuestionError(
                f"{flag_of(name)} {typed[name]}: trained weights are floats (float32, bfloat16, float16); frozen ones in fewer "
                "bits are --method qlora, or --method lora --quant llm.int8"
            )


def _is_of_trl(method: str | None) -> bool:
    """Whether the method is a task (dpo, grpo ...) that TRL's trainers run and the Trainer alone does not."""
    from vramcast.training.methods import TASKS

    return method in TASKS and TASKS[method].source.startswith("trl/")


def _defaults(question: Training, typed: Mapping[str, Any]) -> tuple[Assumption, ...]:
    """What this program chose where neither words nor files said anything: batch, length, and the adapter's size and targets."""
    from vramcast.training.methods import TASKS

    adapter = question.adapter or Adapter()
    chosen: dict[str, tuple[Any, str]] = {
        "micro_batch": (question.micro_batch, "one sequence where nothing was said"),
        "seq": (question.seq, "where nothing was said"),
    }
    if question.adapter is None and question.method not in ("full", "pretrain", *TASKS):  # a task trains every weight
        chosen["rank"] = adapter.rank, "PEFT's default"
        chosen["targets"] = ", ".join(adapter.targets), "every linear layer, as QLoRA's authors advise"
    fallback = Training(model=question.model)
    of_trl = _is_of_trl(question.method) and question.framework == "trl" and "framework" not in typed
    trainer = (
        (Assumption("framework", "trl", f"{question.method} is a trainer of TRL's; the Trainer alone has none"),)
        if of_trl
        else ()
    )
    open_ = {name for name in chosen if name not in typed and getattr(question, name, None) == getattr(fallback, name, None)}
    return (*trainer, *(Assumption(name, *chosen[name]) for name in chosen if name in open_))


def _read(files: Sequence[str | PathLike[str]], capability: tuple[int, int] | None) -> "Settings | None":
    if not files:
        return None
    from vramcast.reading.training.files import read_training_files

    return read_training_files(tuple(fspath(file) for file in files), capability)


def _read_text(text: str, capability: tuple[int, int] | None) -> "Settings":
    from vramcast.reading.training.files import read_training_text

    return read_training_text(text, capability)


def _question(typed: dict[str, Any], settings: "Settings | None", gpu: str | None, gpus: int) -> "tuple[Training, Model | None]":
    """The question, and the model where it was given by numbers."""
    from vramcast.asking.training_files import no_model, under_words

    asked = under_words(typed, settings) if settings else typed
    layout, world = layout_of(_layout_words(asked), gpus if gpus > 1 or settings is None else settings.get("gpus") or gpus)
    shaped = _shaped(asked, typed, settings)
    if shaped is None and "model" not in asked:
        raise no_model(settings)
    fields: dict[str, Any] = {name: asked[name] for name in (*_TEXTS, *_NUMBERS) if name in asked}
    fields |= {name: count_of(asked[name], name) for name in ("micro_batch", "seq") if name in asked}
    usual = "trl" if _is_of_trl(asked.get("method")) else "hf_trainer"
    name, _, version = asked.get("framework", usual).partition("==")
    question = Training(
        model=asked.get("model") or (shaped.id if shaped else ""),
        gpu=gpu,
        gpus=world,
        framework=name,
        framework_version=version or None,
        adapter=_adapter(asked, settings),
        parallel=layout,
        offload=tuple(asked.get("offload", ())),
        options=_options(asked, settings),
        accumulate=_accumulate(typed, asked, settings, layout.dp),
        tokens=_tokens(asked),
        gpu_hour_usd=asked.get("gpu_hour_usd"),
        link_bytes_per_s=link_of(str(asked["link"])) if asked.get("link") else None,
        **fields,
    )
    return question, shaped


def _tokens(asked: Mapping[str, Any]) -> int | None:
    """Tokens of the whole run: as told, or epochs over samples of the sequence's length."""
    if "tokens" in asked:
        return count_of(asked["tokens"], "tokens")
    if "samples" not in asked:
        if "epochs" in asked:
            raise QuestionError("--epochs needs --samples, how many sequences one epoch has; or give --tokens")
        return None
    each = count_of(asked.get("seq", Training(model="").seq), "seq")
    return max(1, round(float(asked.get("epochs", 1)) * count_of(asked["samples"], "samples") * each))


def _layout_words(asked: Mapping[str, Any]) -> LayoutWords:
    words: LayoutWords = {}
    words.update({name: asked[name] for name in LayoutWords.__annotations__ if name in asked})  # type: ignore[typeddict-item]
    return words


def _accumulate(typed: Mapping[str, Any], asked: Mapping[str, Any], settings: "Settings | None", ranks: int) -> int:
    """As typed or read; or what a file's global batch leaves after the micro-batches of every data-parallel rank."""
    whole = settings.get("global_batch") if settings else None
    if whole and "accumulate" not in typed and "accumulate" not in (settings.values if settings else {}):
        return max(1, int(whole) // (count_of(asked.get("micro_batch", 1), "micro_batch") * ranks))
    return count_of(asked.get("accumulate", 1), "accumulate")


def _adapter(asked: Mapping[str, Any], settings: "Settings | None") -> Adapter | None:
    """The adapter of the files, its rank and targets replaced by typed ones; None where neither says anything of one."""
    from vramcast.asking.training_files import adapter_fields

    fields = adapter_fields(settings) if settings else {}
    fields |= {name: asked[name] for name in ("rank", "dropout") if name in asked}
    if targets := asked.get("targets"):
        fields["targets"] = tuple(targets.split(",")) if isinstance(targets, str) else tuple(targets)
    full = asked.get("method", "full") == "full"
    return Adapter(**fields) if fields and not (full and settings) else None


def _options(asked: Mapping[str, Any], settings: "Settings | None") -> dict[str, Any]:
    """Parts of the recipe: what files decide, then the moments and images asked for, then ``settings`` word by word."""
    from vramcast.asking.training_files import recipe_parts

    moments = {name: asked[name] for name in MOMENTS if name in asked}
    for name, value in moments.items():
        if name != "saves" and value < 1:
            raise QuestionError(f"{name} is {value}: expected at least 1")
    images = {name: asked[name] for name in IMAGES if name in asked}
    return (recipe_parts(settings) if settings else {}) | moments | images | _settings(asked.get("settings", ()))


def _settings(given: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return dict(given)
    settings: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            raise QuestionError(f"--set {pair[:60]!r} is not NAME=VALUE")
        settings[name] = _plain(value)
    return settings


def _plain(text: str) -> Any:
    from vramcast.untrusted import parse_yaml

    try:
        return parse_yaml(text, "--set")
    except QuestionError:
        return text


def _shaped(asked: Mapping[str, Any], typed: Mapping[str, Any], settings: "Settings | None") -> "Model | None":
    numbers = {name: asked[name] for name in ShapeWords.__annotations__ if name in asked}
    if not numbers:
        return None
    from vramcast.asking.training_files import no_model, shape_details
    from vramcast.training.shape import Shape, shape_model

    missing = [f"--{name}" for name in ("layers", "hidden", "heads") if name not in numbers]
    if missing and settings is not None and not numbers.keys() & typed.keys():
        raise no_model(settings)  # a width alone in a file is no model
    if missing:
        raise QuestionError(f"a model given by numbers needs {', '.join(missing)} too")
    details = shape_details(settings) if settings else {}
    return shape_model(Shape(**numbers, **details, name=f"{numbers['layers']} layers x {numbers['hidden']}"))
