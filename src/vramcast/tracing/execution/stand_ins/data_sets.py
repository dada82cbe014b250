"""``datasets.load_dataset`` of a published set that is not here: rows with its columns, as many words long, made up.

How long texts are decides what a padded batch takes, so the answer names every set that was made up. A set that is not known by
name gets the columns that the script itself asks for by name, and is said to be guessed; without any, the failure stays.
"""

import functools
from pathlib import Path
from typing import Any

from vramcast.tracing.execution.advice import is_network
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.asked_columns import columns_asked
from vramcast.tracing.execution.stand_ins.imported import when_imported
from vramcast.tracing.execution.stand_ins.reachable import look_once
from vramcast.tracing.published.data_sets import DataSet, data_set, row, rows_made, value

_FILES = frozenset(
    {"json", "csv", "text", "parquet", "arrow", "pandas", "imagefolder", "audiofolder", "webdataset", "xml", "pickle"}
)
_MADE_UP = "made up by vramcast"


def install(session: Session) -> None:
    """Answer where ``load_dataset`` finds nothing, with a note."""
    when_imported("datasets.load", functools.partial(_patch, session))


def _patch(session: Session, module: Any) -> None:
    original = module.load_dataset

    @functools.wraps(original)
    def load(path: Any, name: Any = None, *args: Any, **options: Any) -> Any:
        local = str(path) in _FILES or Path(str(path)).exists()
        if not local:
            look_once()
        try:
            return original(path, name, *args, **options)
        except Exception as failure:
            asked = None if local or not is_network(failure) else _asked(str(path), name, session)
            if asked is None:
                raise
        return _made(asked, options.get("split"), streaming=bool(options.get("streaming")))

    module.load_dataset = load
    _selectable()
    _audible()
    _in_one_process()


def _asked(path: str, name: Any, session: Session) -> DataSet | None:
    found = data_set(path, name if isinstance(name, str) else None)
    if found is None:
        columns = columns_asked()
        found = DataSet(path, columns, dict(_GUESSED_SPLITS)) if columns else None
        if found is not None:
            named = ", ".join(columns)
            session.notes[f"data set {path} is not here nor known: rows with what the script asks for ({named}) are made up"] = (
                None
            )
        return found
    session.notes[f"data set {path} is not here: {found.rows}"] = None
    return found


_GUESSED_SPLITS = {"train": 10_000, "validation": 1_000, "test": 1_000}


def _made(asked: DataSet, split: Any, *, streaming: bool) -> Any:
    import datasets  # type: ignore[import-not-found]

    if isinstance(split, list | tuple):
        return [_made(asked, each, streaming=streaming) for each in split]
    if split is None:
        whole = {name: _table(asked, count) for name, count in asked.splits.items()}
        streams = {name: table.to_iterable_dataset() for name, table in whole.items()} if streaming else {}
        return datasets.IterableDatasetDict(streams) if streaming else datasets.DatasetDict(whole)
    table = _table(asked, _rows(asked, split))
    return table.to_iterable_dataset() if streaming else table


def _rows(asked: DataSet, split: Any) -> int:
    """How many rows an expression such as ``train[:5%]+test`` means. Raises ValueError for a split that is not known."""
    from datasets.arrow_reader import ReadInstruction  # type: ignore[import-not-found]

    if str(split) in {"all", *asked.splits}:
        return asked.splits.get(str(split), sum(asked.splits.values()))
    instruction = split if isinstance(split, ReadInstruction) else ReadInstruction.from_spec(str(split))
    splits = asked.splits
    if splits == _GUESSED_SPLITS:  # whatever it is called
        splits = {each.splitname: splits["train"] for each in instruction._relative_instructions} | splits
    try:
        parts = instruction.to_absolute(splits)
    except ValueError:
        known = ", ".join(splits)
        raise ValueError(f"data set {asked.id} is not here, and of its splits {known} are known, not {split}") from None
    return sum(part.to - part.from_ for part in parts)


def _table(asked: DataSet, count: int) -> Any:
    import datasets

    features = datasets.Features({name: _feature(kind, datasets) for name, kind in asked.columns.items()})
    pictures: dict[tuple[Any, ...], Any] = {}
    numbers = range(rows_made(asked, count))
    made = [{n: _held(v, asked.columns[n], pictures) for n, v in row(asked.columns, number).items()} for number in numbers]
    table = datasets.Dataset.from_list(made, features=features)
    table.info.description = _MADE_UP
    return table


def _held(made: Any, kind: Any, pictures: dict[tuple[Any, ...], Any]) -> Any:
    """A value as ``datasets`` stores it: pictures and sounds of one size are one file."""
    if isinstance(kind, list) and str(kind[0]).startswith(("image", "grey")):
        return [_held(each, kind[0], pictures) for each in made]
    if not str(kind).startswith(("image:", "grey:", "audio:")):
        return made
    if made not in pictures:
        pictures[made] = {"bytes": _sound(*made) if len(made) == 2 else _picture(*made), "path": None}
    return pictures[made]


def _picture(width: int, height: int, channels: int) -> bytes:
    import io

    from PIL import Image  # type: ignore[import-not-found]

    file = io.BytesIO()
    Image.new("RGB" if channels == 3 else "L", (width, height)).save(file, "PNG")
    return file.getvalue()


def _sound(rate: int, seconds: int) -> bytes:
    import io
    import wave

    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, rate, 0, "NONE", ""))
        sound.writeframes(bytes(2 * rate * seconds))
    return file.getvalue()


def _feature(kind: Any, datasets: Any) -> Any:
    """The feature that a kind of column has."""
    if isinstance(kind, dict):
        return {name: _feature(part, datasets) for name, part in kind.items()}
    if isinstance(kind, list):
        return datasets.Sequence(_feature(kind[0], datasets)) if not isinstance(kind[0], dict) else [_feature(kind[0], datasets)]
    name, _, size = str(kind).partition(":")
    if name in {"image", "grey", "audio"}:
        return datasets.Audio(sampling_rate=int(size.split("x")[0])) if name == "audio" else datasets.Image()
    if name in {"label", "labelfrom1", "tags"}:
        names = [f"class {number}" for number in range(int(size.partition(":")[0]))]
        return datasets.ClassLabel(names=names)
    sample = value(kind, 0, {}) if name not in {"first", "words"} else ""
    return _of_value(sample, datasets)


def _of_value(sample: Any, datasets: Any) -> Any:
    if isinstance(sample, dict):
        return {name: _of_value(part, datasets) for name, part in sample.items()}
    if isinstance(sample, list):
        return [_of_value(sample[0], datasets)]
    if sample is None:
        return datasets.Value("string")
    plain = {bool: "bool", int: "int64", float: "float32", str: "string"}
    return datasets.Value(plain[type(sample)])


def _selectable() -> None:
    """Rows beyond those that were made are the first ones again: scripts name as many as the published set has."""
    from datasets import Dataset

    original = Dataset.select

    @functools.wraps(original)
    def select(table: Any, indices: Any, *args: Any, **options: Any) -> Any:
        if table.info.description == _MADE_UP and len(table):
            indices = [int(index) % len(table) for index in indices]
        return original(table, indices, *args, **options)

    Dataset.select = select


def _in_one_process() -> None:
    """``map`` and ``filter`` run here whatever ``num_proc`` says: processes forked from a traced one wait for ever."""
    from datasets import Dataset

    for name in ("map", "filter"):
        original = getattr(Dataset, name)

        def call(table: Any, *args: Any, _original: Any = original, **options: Any) -> Any:
            options |= {"num_proc": None}
            try:
                return _original(table, *args, **options)
            except Exception as failure:
                if type(failure).__name__ != "ArrowInvalid" or not _has_more(table, options.get("remove_columns")):
                    raise
            return _original(table.select_columns(options["remove_columns"]), *args, **options)

        setattr(Dataset, name, functools.wraps(original)(call))


def _has_more(table: Any, removed: Any) -> bool:
    """Whether made-up rows have columns that a script, which makes rows of another number, does not know to remove."""
    made_up = getattr(getattr(table, "info", None), "description", "") == _MADE_UP
    return made_up and isinstance(removed, list) and set(removed) < set(table.column_names)


def _audible() -> None:
    """Sounds without torchcodec, which decodes them since datasets 4 and needs FFmpeg: a WAV file is read as it is."""
    from datasets import Audio

    original, encode = Audio.decode_example, Audio.encode_example

    def encoded(feature: Any, value: Any) -> Any:
        return value if isinstance(value, dict) and value.get("bytes") else encode(feature, value)

    @functools.wraps(original)
    def decode(feature: Any, value: Any, *args: Any, **options: Any) -> Any:
        try:
            return original(feature, value, *args, **options)
        except (ImportError, OSError, RuntimeError):
            if not (value.get("bytes") or b"").startswith(b"RIFF"):
                raise
        return _waves(value["bytes"], feature.sampling_rate)

    Audio.decode_example, Audio.encode_example = decode, encoded


def _waves(data: bytes, rate: int | None) -> dict[str, Any]:
    """The samples of a 16-bit WAV file, at another rate taken as often."""
    import io
    import wave

    import numpy as np

    with wave.open(io.BytesIO(data)) as sound:
        own = sound.getframerate()
        samples = np.frombuffer(sound.readframes(sound.getnframes()), dtype="<i2").astype(np.float32) / 2**15
    places = np.arange(0, len(samples), own / (rate or own)).astype(np.int64)
    return {"path": None, "array": samples[places], "sampling_rate": rate or own}
