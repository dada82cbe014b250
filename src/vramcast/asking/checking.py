"""``vramcast check``: does what these files start fit the card? Serving and training files alike, one verdict each."""

from collections.abc import Iterator, Sequence
from os import PathLike, fspath
from pathlib import Path

import msgspec

from vramcast.errors import QuestionError, VramcastError
from vramcast.ledger import Forecast

SERVING, TRAINING = "serving", "training"


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A file's answer. ``kind``: serving or training, "" for neither; ``error``: why there is no answer."""

    file: str
    kind: str = ""
    forecast: Forecast | None = None
    error: str = ""

    @property
    def passes(self) -> bool:
        """Whether it fits, or tightly so."""
        return self.forecast is not None and self.forecast.fit.verdict in ("fits", "tight")


def check_files(
    files: Sequence[str | PathLike[str]], *, gpu: str, model: str | None = None, strict: bool = False
) -> Iterator[Checked]:
    """The answer of each file in turn. ``model``: of training files that name none; ``strict``: tight does not pass either.

    Raises QuestionError for no files and for cards that cannot be; what is wrong with one file is that file's error.
    """
    from vramcast.hardware.cards import parse_gpus

    if not files:
        raise QuestionError("no files: name what starts a server or a training, for example docker-compose.yml or axolotl.yml")
    parse_gpus(gpu)
    for file in files:
        checked = _checked(fspath(file), gpu, model)
        yield _strictly(checked) if strict else checked


def _checked(file: str, gpu: str, model: str | None) -> Checked:
    from vramcast.asking.asked import answer_serving, answer_training
    from vramcast.asking.serving import serving_question
    from vramcast.asking.training import training_question

    if not Path(file).is_file():
        return Checked(file=file, error=f"no file {file!r}")
    try:
        kind = kind_of(file)
        if kind == SERVING:
            return Checked(file=file, kind=kind, forecast=answer_serving(serving_question(file, gpu=gpu)))
        return Checked(file=file, kind=kind, forecast=answer_training(training_question(model, files=[file], gpu=gpu)))
    except VramcastError as error:
        return Checked(file=file, error=str(error))


def kind_of(file: str) -> str:
    """Whether the file starts a server or a training. Raises QuestionError for one that does neither, with both reasons."""
    from vramcast.reading.serving.files import is_serving_file, read_serving_file
    from vramcast.reading.training.files import read_training_files

    reasons = []
    try:
        read_training_files((file,))
        return TRAINING
    except VramcastError as error:
        reasons.append(f"as a training: {error}")
    try:
        if is_serving_file(file) and read_serving_file(file).launches:
            return SERVING
        reasons.append("as a server: it starts no engine known here")
    except VramcastError as error:
        reasons.append(f"as a server: {error}")
    raise QuestionError("; ".join(reasons))


def _strictly(checked: Checked) -> Checked:
    if checked.forecast is None or checked.forecast.fit.verdict != "tight":
        return checked
    return msgspec.structs.replace(checked, error="tight, and --strict asks for more than that")
