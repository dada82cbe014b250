"""Files of data that a program opens and that are not on this machine: what has a usual form is made up, each with a note.

Rows have the columns that the program's own files ask for; weights of a checkpoint have no values. Only an open that would have
failed is answered, of the program's own call (also through a reader of a library), outside any ``try``: a program that looks
first whether a file is there finds that it is not. Nothing is written outside the scratch layer.
"""

import builtins
import functools
import inspect
import io
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import torch

from vramcast.tracing.execution.handling import does_without_file
from vramcast.tracing.execution.overlay import Overlay
from vramcast.tracing.execution.places import is_library
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.asked_columns import columns_asked, program_texts
from vramcast.tracing.execution.stand_ins.imported import is_optional, when_imported
from vramcast.tracing.execution.stand_ins.pretrained import Unread
from vramcast.tracing.published import local_files

# What may stand between the program and an open: readers of files, and the loaders that call the program's own data sets.
_READERS = (
    "/gzip.py", "/codecs.py", "/pathlib.py", "/fileinput.py", "/contextlib.py", "/functools.py", "/numpy/", "/pandas/", "/PIL/",
    "/torch/serialization.py", "/torch/utils/data/", "/torchvision/datasets/folder.py", "/vramcast/", "<", "/tqdm/", "/torch/_",
    "/multiprocessing/", "/skimage/", "/imageio/", "/scipy/io/", "/wave.py", "/librosa/", "/soundfile.py",
)  # fmt: skip
_PICTURE_READERS = ("cv2", "skimage.io._io", "imageio.v2", "imageio.v3", "matplotlib.image")  # which look first, or return None
_WEIGHTS = (".pt", ".pth", ".ckpt", ".bin", ".th", ".tar", ".safetensors", ".model", "")
_SOUND_READERS = {"soundfile": ("read", "info", "SoundFile"), "librosa.core.audio": ("load",)}
_LONGEST_SETTING = 1 << 20  # bytes
_TOKENS, _KINDS_OF_TOKENS = 20_000_000, 97
_COLLATED = frozenset({"labels"})  # of a batch; no column of a file that also has texts


def install(session: Session, scratch: Overlay) -> "AbsentFiles":
    """Answer for files, NumPy's maps, checkpoints, tables and folders of pictures by class."""
    files = AbsentFiles(session, scratch)
    _opening(files)
    _rows_of_json(files)
    torch.load = _loading(torch.load, files)
    when_imported("safetensors.torch", lambda module: setattr(module, "load_file", _loading(module.load_file, files)))
    when_imported("numpy", functools.partial(_maps, files))
    when_imported("pyarrow.parquet", functools.partial(_tables, files, ("read_table", "ParquetFile", "read_schema")))
    when_imported("pandas", functools.partial(_tables, files, ("read_parquet",)))
    for module, names in _SOUND_READERS.items():
        when_imported(module, functools.partial(_tables, files, names))
    for module in _PICTURE_READERS:
        when_imported(module, functools.partial(_tables, files, ("imread",)))
    when_imported("datasets.load", functools.partial(_builders, files))
    when_imported("datasets.arrow_dataset", functools.partial(_readers, files))
    when_imported("torchvision.datasets.folder", functools.partial(_folders, files))
    return files


class AbsentFiles:
    """The files that were made up, in the program's scratch layer."""

    def __init__(self, session: Session, scratch: Overlay) -> None:
        self._session, self.scratch, self._process = session, scratch, os.getpid()
        self.rows: dict[str, dict[str, Any]] = {}
        self.lines: set[str] = set()

    def note(self, text: str) -> None:
        """Say in the answer that something was made up."""
        if os.getpid() != self._process:  # a loader's worker, whose notes end with it
            self.scratch.tell(text)
        self._session.notes[text] = None

    def card(self, place: Any) -> torch.device | None:
        """The card that a checkpoint is loaded onto; None for the host, and where nothing or a function says where."""
        if isinstance(place, dict):
            place = next(iter(place.values()), None)
        kind = self._session.backend.device_type
        found = torch.device(place) if isinstance(place, str | torch.device) else None
        return found if found is not None and found.type == kind else None

    def lacks(self, path: Any) -> str:
        """The path, where the program's own call asks for a file that is not there; else ""."""
        if not isinstance(path, str | os.PathLike) or not _asked_by_program(sys._getframe(1)):
            return ""
        plain = os.fsdecode(path)
        return "" if self.scratch.there(plain) or not plain else plain

    def make(self, path: str, *, said: bool = False) -> bool:
        """Lay a made-up file there; False where its form is not known. ``said``: the program reads it as rows of data."""
        columns: dict[str, Any] = {}
        if local_files.is_rows(path, said=said):
            columns = _columns()
            if not columns:
                return False
            self.note(
                f"{path} is not here: rows with what the program asks for ({', '.join(columns)}) are made up, as long as usual"
            )
        elif local_files.is_picture(path):
            self.note(f"{Path(path).parent}: pictures that are not here are made up, of 640 x 480")
        elif local_files.is_sound(path):
            return self._lay_sound(path)
        elif local_files.is_text(path):
            self.note(f"{path} is not here: a text that says nothing is made up")
        else:
            return False
        made = local_files.content(path, columns, array=_reads_a_list())
        self.scratch.lay(path, made)
        if columns:
            self._remember(path, columns, made)
        return True

    def _lay_sound(self, path: str) -> bool:
        rate = local_files.rate_of((*program_texts(), *_settings_named()))
        if rate is None:
            return False
        self.note(
            f"{Path(path).parent}: sounds that are not here are made up, of {local_files.SOUND_S} seconds at {rate:,} samples"
            " a second, the rate that the program names"
        )
        self.scratch.lay(path, local_files.sound(rate))
        return True

    def _remember(self, path: str, columns: dict[str, Any], made: bytes) -> None:
        self.rows[str(Path(path).absolute())] = columns
        if path.endswith((".json", ".jsonl")) and not made.startswith(b"["):
            self.lines.update(made.decode().splitlines())

    def lay_tokens(self, path: str, dtype: Any) -> bool:
        """Lay a file of small numbers of a type of integers; False for any other type."""
        import numpy as np

        kind = np.dtype(dtype)
        if kind.kind not in "ui":
            return False
        below = _KINDS_OF_TOKENS + 1
        self.note(
            f"{path} is not here: {_TOKENS:,} made-up tokens of {kind} stand for it, all below {below}: a vocabulary that is"
            " counted from them is too small"
        )
        self.scratch.lay(path, (1 + np.arange(_TOKENS) % _KINDS_OF_TOKENS).astype(kind).tobytes())
        return True


def _is_handled(frame: Any) -> bool:
    """Whether a caller in the program deals with the missing file."""
    while frame is not None:
        path = frame.f_code.co_filename
        if not is_library(path) and does_without_file(path, frame.f_lineno):
            return True
        frame = frame.f_back
    return False


def _asked_by_program(frame: Any) -> bool:
    """Whether the program's own code, in no ``try``, stands behind a call, with nothing but readers of files between."""
    while frame is not None and is_library(frame.f_code.co_filename):
        if not any(part in frame.f_code.co_filename for part in _READERS):
            return False
        frame = frame.f_back
    return frame is not None and not is_optional(frame) and not _is_handled(frame)


def _settings_named() -> Iterable[str]:
    """The texts of the settings that the command line names."""
    for word in sys.argv[1:]:
        place = Path(word.rpartition("=")[2])
        if place.suffix in {".json", ".yaml", ".yml"} and place.is_file() and place.stat().st_size < _LONGEST_SETTING:
            yield place.read_text(encoding="utf-8", errors="replace")


def _columns() -> dict[str, Any]:
    found = columns_asked()
    texts = {name: kind for name, kind in found.items() if name not in _COLLATED}
    return texts or found


def _reads_a_list() -> bool:
    """Whether the program reads a file of JSON whole."""
    return any("json.load(" in text for text in program_texts())


def _opening(files: AbsentFiles) -> None:
    original = builtins.open

    @functools.wraps(original)
    def opened(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        try:
            return original(file, mode, *args, **options)
        except FileNotFoundError:
            path = "" if set(mode) & set("wax+") else files.lacks(file)
            if not path or not files.make(path):
                raise
        return original(file, mode, *args, **options)

    builtins.open = io.open = sys.modules["_io"].open = opened  # type: ignore[attr-defined]


class Row(dict[str, Any]):
    """A made-up row: what else the program asks of it is a short text, and is told."""

    told: ClassVar[Callable[[str], None]] = print

    def __missing__(self, key: str) -> str:
        Row.told(f"rows were asked for {key!r}, which no program here is known to use: a text of six words stands for it")
        return "a made-up text of several words"


def _rows_of_json(files: AbsentFiles) -> None:
    """Rows that a program reads from a made-up file answer for every key."""
    Row.told = files.note
    library: Any = json
    load, loads = library.load, library.loads

    @functools.wraps(load)
    def of_file(file: Any, **options: Any) -> Any:
        found = load(file, **options)
        name = getattr(file, "name", None)
        own = isinstance(name, str) and files.scratch.shown(str(Path(name).absolute())) in files.rows
        return [Row(each) if isinstance(each, dict) else each for each in found] if own and isinstance(found, list) else found

    @functools.wraps(loads)
    def of_text(text: Any, **options: Any) -> Any:
        found = loads(text, **options)
        own = files.lines and isinstance(found, dict) and isinstance(text, str) and text.strip() in files.lines
        return Row(found) if own else found

    library.load, library.loads = of_file, of_text


def _loading(original: Any, files: AbsentFiles) -> Any:
    """A checkpoint that is not here has no values; what is loaded from it stays as it was made."""

    @functools.wraps(original)
    def load(source: Any, *args: Any, **options: Any) -> Any:
        try:
            return original(source, *args, **options)
        except FileNotFoundError:
            path = files.lacks(source)
            if not path or Path(path).suffix not in _WEIGHTS or local_files.is_tensors_of_data(path):
                raise
        place = options.get("map_location", options.get("device", args[0] if args else None))
        card = files.card(place)
        held = ", and counts on the card as much as that while it is held there" if card is not None else ""
        files.note(f"{path} is not here: what is loaded from it keeps the values that it was made with{held}")
        return Unread(path, card)

    return load


def _maps(files: AbsentFiles, module: Any) -> None:
    """Tokens that a program maps into memory or reads by their type."""
    memmap, fromfile = module.memmap.__new__, module.fromfile

    def mapped(cls: Any, filename: Any, dtype: Any = module.uint8, mode: str = "r+", *args: Any, **options: Any) -> Any:
        if mode in {"r", "c"} and not options.get("shape") and (path := files.lacks(filename)) and path.endswith(".bin"):
            files.lay_tokens(path, dtype)
        return memmap(cls, filename, dtype, mode, *args, **options)

    @functools.wraps(fromfile)
    def read(file: Any, dtype: Any = float, *args: Any, **options: Any) -> Any:
        if (path := files.lacks(file)) and path.endswith(".bin"):
            files.lay_tokens(path, dtype)
        return fromfile(file, dtype, *args, **options)

    module.memmap.__new__, module.fromfile = mapped, read


def _tables(files: AbsentFiles, names: Iterable[str], module: Any) -> None:
    """Files of tables and pictures, which compiled code opens by their path."""
    for name in names:
        original = getattr(module, name)
        if inspect.isclass(original):
            setattr(original, "__init__", _with_place(vars(original)["__init__"], files, 1))  # noqa: B010
        else:
            setattr(module, name, _with_place(original, files, 0))


def _with_place(original: Any, files: AbsentFiles, number: int) -> Any:
    @functools.wraps(original)
    def read(*args: Any, **options: Any) -> Any:
        given = args[number] if len(args) > number else None
        if (path := files.lacks(given)) and any(
            said(path) for said in (local_files.is_rows, local_files.is_picture, local_files.is_sound)
        ):
            files.make(path)
        if isinstance(given, str | os.PathLike) and files.scratch.there(os.fsdecode(given)):
            args = (*args[:number], files.scratch.seen(os.fsdecode(given)), *args[number + 1 :])
        return original(*args, **options)

    return read


def _builders(files: AbsentFiles, module: Any) -> None:
    """``load_dataset("json", data_files=...)`` of files that are not here."""
    original = module.load_dataset

    @functools.wraps(original)
    def load(path: Any, *args: Any, **options: Any) -> Any:
        named = tuple(_named(options.get("data_files")))
        for file in named or (path,):
            rows = local_files.is_rows(str(file), said=bool(named))
            if files.lacks(file) and (rows or (named and local_files.is_text(str(file)))):
                files.make(str(file), said=bool(named))
        return original(path, *args, **options)

    module.load_dataset = load


def _readers(files: AbsentFiles, module: Any) -> None:
    """``Dataset.from_json`` and its kin."""
    for name in ("from_json", "from_csv", "from_parquet", "from_text"):
        original = getattr(module.Dataset, name)

        @functools.wraps(original)
        def read(given: Any, *args: Any, _original: Any = original, **options: Any) -> Any:
            for file in _named(str(given) if isinstance(given, os.PathLike) else given):
                if files.lacks(file):
                    files.make(file, said=True)
            return _original(given, *args, **options)

        setattr(module.Dataset, name, staticmethod(read))


def _named(given: Any) -> Iterable[str]:
    if isinstance(given, str):
        return (given,) if "://" not in given and "*" not in given else ()
    if isinstance(given, dict):
        given = tuple(given.values())
    return (file for each in given for file in _named(each)) if isinstance(given, list | tuple) else ()


_CLASSES, _PICTURES = 1_000, 20_000  # classes as ImageNet has them


def _folders(files: AbsentFiles, module: Any) -> None:
    """Folders of pictures by class."""
    kind = module.DatasetFolder
    find, make = kind.find_classes, kind.__dict__["make_dataset"].__func__

    def classes(self: Any, directory: Any) -> Any:
        if not files.lacks(directory):
            return find(self, directory)
        files.note(f"{directory} is not here: {_PICTURES:,} pictures of {_CLASSES:,} classes are made up, of 640 x 480")
        names = [f"class_{number:04d}" for number in range(_CLASSES)]
        return names, {name: number for number, name in enumerate(names)}

    def samples(directory: Any, *args: Any, **options: Any) -> Any:
        if not files.lacks(directory):
            return make(directory, *args, **options)
        place = str(Path(directory) / "made_up.jpg")
        files.scratch.lay(place, local_files.content(place, {}, array=False))  # once, not in every worker of a loader
        return [(place, number % _CLASSES) for number in range(_PICTURES)]

    kind.find_classes, kind.make_dataset = classes, staticmethod(samples)
