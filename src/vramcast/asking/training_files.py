"""What training files say, as the words of a training question; words that were typed stand before them."""

from typing import Any

from vramcast.errors import QuestionError
from vramcast.reading.training.formats import quantised_by_name
from vramcast.reading.training.settings import Settings
from vramcast.untrusted import printable

_SAME = (
    "model", "framework", "method", "optimizer", "micro_batch", "seq", "accumulate", "checkpointing", "attention", "loss",
    "compile", "param_dtype", "compute_dtype", "grad_dtype", "quant",
)  # fmt: skip
SHAPE = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "experts", "expert_ffn")
_ADAPTER = ("rank", "targets", "dropout", "modules_to_save", "dora", "parameters")


def under_words(words: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """The words, with what the files say wherever none was typed.

    Raises QuestionError where they point to a DeepSpeed file that is not at hand and no stage was typed.
    """
    if settings.missing and not {"zero", "fsdp"} & words.keys():
        raise QuestionError(
            f"{settings.missing[0]} cannot be read: the configuration points to it; put it beside, give it with --from too, or "
            "say its stage with --zero N"
        )
    if settings.holder and "method" not in words:
        raise QuestionError(
            f"{settings.holder} says what is trained, and is not at hand: put it beside, give it with --from too, or say "
            f"--method full, lora or qlora{_told(settings)}"
        )
    if "model" in words:
        quantised_by_name(settings, str(words["model"]))
    else:
        _model_of(settings)
    void = SHAPE if "model" in words else ()  # a named model has its own
    return words | {name: value for name, value in _words_of(settings).items() if name not in words and name not in void}


def _model_of(settings: Settings) -> None:
    """Take a model's path of another machine for the known model that it names.

    Raises QuestionError for one that names none, and where a variable that nobody set holds the model or its shape.
    """
    from vramcast.reading.elsewhere import is_elsewhere, known_name
    from vramcast.reading.training.model_names import suggested

    _told_otherwise(settings)
    path = settings.get("model")
    if path is None:
        opened = {"model", *(f"shape.{name}" for name in SHAPE)} & settings.opened.keys()
        if opened and not settings.group("shape").keys() >= {"layers", "hidden", "heads"}:
            held = ", ".join(sorted(name.removeprefix("shape.") for name in opened))
            names = ", ".join(dict.fromkeys(settings.opened[name] for name in sorted(opened) if settings.opened[name]))
            held += f" ({printable(names)[:120]})" if names else ""
            raise QuestionError(
                f"no model: a variable that nobody set holds {held}; name it, vramcast train MODEL --from FILE{_told(settings)}"
            )
        return
    if not is_elsewhere(str(path)):
        return
    if (name := known_name(str(path))) is None:
        raise QuestionError(
            f"{printable(str(path))[:120]} is a folder of another machine, and no part of it names a known model: name it, "
            f"vramcast train MODEL --from FILE{suggested(settings)}{_told(settings)}"
        )
    settings.replace("model", name, f"{settings.because['model']}: {printable(str(path))[:120]}, which is not here, by its name")


def _told_otherwise(settings: Settings) -> None:
    """A model that only a tag or a family names, where no key of the format does, or where that is an unknown folder."""
    from vramcast.reading.elsewhere import is_elsewhere, known_name
    from vramcast.reading.training.model_names import told_by_the_way

    path, shape = settings.get("model"), settings.group("shape")
    shaped = shape.get("layers") or shape.get("hidden") or any(name.startswith("shape.") for name in settings.opened)
    if "model" in settings.opened or shaped:
        return
    if path is not None and (not is_elsewhere(str(path)) or known_name(str(path)) is not None):
        return
    if (told := told_by_the_way(settings)) is not None:
        settings.replace("model", told[0], f"{told[1]}, the only key that names a model")


def _absent(settings: Settings) -> str:
    """The programs that the files start, which may hold the model and are not here."""
    absent = ", ".join(dict.fromkeys(settings.absent))
    return f" ({absent}, which is not at hand, may: give it too with --from)" if absent else ""


def _told(settings: Settings) -> str:
    """What the files do say, behind what they lack."""
    told = settings.summary()
    return f" ({told})" if told else ""


def no_model(settings: Settings | None) -> QuestionError:
    """The error of a question without a model: what to write, and what its files said of all else."""
    line = "no model: give an id, a path, or a shape (--layers, --hidden, --heads, --ffn, --vocab)"
    if settings is None:
        return QuestionError(line)
    from vramcast.reading.training.model_names import suggested

    asked = f"vramcast train MODEL --from FILE{suggested(settings)}"
    if settings.builds:
        return QuestionError(
            f"no model: the program builds one of its own classes ({printable(settings.builds)[:60]}), whose layers are not "
            "known here: vramcast trace -- python FILE runs its step without a GPU; or name one that is like it: "
            f"{asked}{_told(settings)}"
        )
    return QuestionError(f"{line}; the files name none{_absent(settings)}: {asked}{_told(settings)}")


def _words_of(settings: Settings) -> dict[str, Any]:
    found: dict[str, Any] = {name: settings.get(name) for name in _SAME if settings.get(name) is not None}
    found |= {name: value for name, value in settings.group("parallel").items() if value is not None}
    if settings.get("zero") in (0, 1) and settings.get("framework") == "megatron":
        pass  # there the distributed optimizer stands for it
    elif settings.get("zero") is not None:
        found["zero"] = settings.get("zero")
    elif settings.get("fsdp"):
        found["fsdp"] = int(settings.get("fsdp"))
    if settings.get("release") and "framework" in found:
        found["framework"] = f"{found['framework']}=={settings.get('release')}"
    if settings.get("offload"):
        found["offload"] = tuple(settings.get("offload"))
    if "model" not in found:
        found |= {name: value for name, value in settings.group("shape").items() if name in SHAPE}
    return found


def adapter_fields(settings: Settings) -> dict[str, Any]:
    """The fields of ``Adapter`` that the files decide; ``sizes`` only where they name one."""
    said = settings.group("adapter")
    sizes = {name.removeprefix("sizes."): value for name, value in said.items() if name.startswith("sizes.")}
    fields = {name: said[name] for name in _ADAPTER if said.get(name) is not None}
    return fields | ({"sizes": sizes} if sizes else {})


def recipe_parts(settings: Settings) -> dict[str, Any]:
    """Parts of the recipe that the files decide."""
    return {name: value for name, value in settings.group("options").items() if value is not None}


def shape_details(settings: Settings) -> dict[str, Any]:
    """What the files say of a model given by numbers beside the numbers themselves (gated, tied, norms ...)."""
    return {name: value for name, value in settings.group("shape").items() if name not in SHAPE}
