"""What stands for a file of data that a program opens and that is not here: rows, texts, tokens or a picture, by its ending.

Only what has a usual form is made: rows have the columns that the program asks for, a text the letters of a plain one.
A file whose shape its name does not tell (arrays, pickles, databases), and one that says how a program is set, are never made.
"""

import csv
import gzip
import io
import re
import wave
from collections.abc import Iterable
from functools import cache
from pathlib import Path, PurePath
from typing import Any

import msgspec

from vramcast.tracing.published.corpora import Corpus
from vramcast.tracing.published.data_sets import row
from vramcast.untrusted import parse_toml

ROWS = 2048
SOUND_S = 10
_RATE = re.compile(r"\b(?:sampling_rate|sample_rate|samplerate|target_sr|sr)\b[\"']?\s*[:=]\s*(\d{4,6})\b")
_TEXT = Corpus("", 2_000_000, 65)
# Bytes of the files of the Hutter prize (mattmahoney.net/dc/textdata.html), which programs read by their length.
_KNOWN = {"enwik8": 100_000_000, "enwik9": 1_000_000_000, "text8": 100_000_000}
_MOST_BYTES = 100_000_000
_LANGUAGES = frozenset({"en", "de", "fr", "es", "zh", "ru", "ja", "src", "tgt", "raw", "tokens"})
_ROWS = frozenset({".json", ".jsonl", ".csv", ".tsv", ".parquet"})
_PICTURES = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".webp": "WEBP", ".bmp": "BMP"}
_PICTURE = (640, 480)  # as most of COCO
_ENCODED = 4  # width, height, channels, and the form of the file
_NAMES = Path(__file__).with_name("file_names.toml")
_SAYS = {kind: frozenset(words.split()) for kind, words in parse_toml(_NAMES.read_text(encoding="utf-8"), _NAMES.name).items()}
_WORD = re.compile(r"[a-z]+")


def is_rows(path: str, *, said: bool = False) -> bool:
    """Whether a file of that name holds rows of data; JSON only where its name or its folder's, or the program, says so."""
    suffix = _suffix(path)
    if suffix not in _ROWS or is_setting(path):
        return False
    return said or suffix != ".json" or bool((_words(_stem(path)) | _words(PurePath(path).parent.name)) & _SAYS["data"])


def is_tensors_of_data(path: str) -> bool:
    """Whether a file of tensors is called as a data set is and not as a checkpoint."""
    named = _words(_stem(path)) | (_words(PurePath(path).parent.name) if _suffix(path) == ".pt" else frozenset())
    return bool(named & (_SAYS["data"] | _SAYS["tensors"])) and not named & _SAYS["run"]


def is_setting(path: str) -> bool:
    """Whether a file is called as one that sets a program, or lists names or files, is."""
    return bool(_words(_stem(path)) & _SAYS["settings"]) or any(
        part.lower() in _SAYS["listing_folders"] for part in PurePath(path).parent.parts[-2:]
    )


def is_output_folder(path: str) -> bool:
    """Whether a folder is called as one that a program writes its checkpoints or results into."""
    named = frozenset[str]().union(*(_words(part) for part in PurePath(path).parts[-2:]))
    return bool(named & (_SAYS["run"] | _SAYS["outputs"]))


def _stem(path: str) -> str:
    return PurePath(path.removesuffix(".gz")).stem


def _words(name: str) -> frozenset[str]:
    """The words of a name, whatever joins them: ``train_tokens``, ``train-tokens2``."""
    return frozenset(_WORD.findall(name.lower()))


def is_picture(path: str) -> bool:
    """Whether a file of that name is a picture."""
    return _suffix(path) in _PICTURES


def is_sound(path: str) -> bool:
    """Whether a file of that name is a sound of plain samples."""
    return _suffix(path) == ".wav"


def rate_of(texts: Iterable[str]) -> int | None:
    """The one rate of samples, in 1/s, that a program's files and settings name; None where they name none, or several."""
    named = {int(found) for text in texts for found in _RATE.findall(text)}
    return named.pop() if len(named) == 1 else None


def sound(rate: int) -> bytes:
    """A WAV file of one channel and 16 bits, as long as a sentence that is read aloud, with the two values -1 and 1."""
    file = io.BytesIO()
    with wave.open(file, "wb") as made:
        made.setparams((1, 2, rate, 0, "NONE", ""))
        made.writeframes(b"\x01\x00\xff\xff" * (rate * SOUND_S // 2))
    return file.getvalue()


def is_text(path: str) -> bool:
    """Whether a file of that name is a plain text."""
    if PurePath(path).stem in _KNOWN or PurePath(path).name in _KNOWN:
        return True
    return (_suffix(path) == ".txt" or _suffix(path)[1:] in _LANGUAGES) and not is_setting(path)


def _suffix(path: str) -> str:
    plain = path.removesuffix(".gz")
    return PurePath(plain).suffix.lower()


def rows_of(columns: dict[str, Any], count: int = ROWS) -> list[dict[str, Any]]:
    """Rows of these columns that a file can hold: a picture is the name of another file that is not here."""
    return [{name: _held(value, number) for name, value in row(columns, number).items()} for number in range(count)]


def _held(value: Any, number: int) -> Any:
    if not isinstance(value, tuple):
        return value
    return _picture(value[3], value[:2]) if len(value) == _ENCODED else f"made_up_{number % 16}.jpg"


def content(path: str, columns: dict[str, Any], *, array: bool) -> bytes:
    """The bytes of a made-up file; ``array``: rows of JSON stand in one list, not one on each line."""
    if is_picture(path):
        return _picture(_PICTURES[_suffix(path)])
    made = _rows(_suffix(path), columns, array=array) if _suffix(path) in _ROWS else _text(path)
    return gzip.compress(made, 1) if path.endswith(".gz") else made


def _text(path: str) -> bytes:
    length = _KNOWN.get(PurePath(path).stem, _KNOWN.get(PurePath(path).name, 0))
    made = _TEXT.text().encode()
    return (made * (length // len(made) + 1))[: min(length, _MOST_BYTES)] if length else made


def _rows(suffix: str, columns: dict[str, Any], *, array: bool) -> bytes:
    made = rows_of(columns)
    if suffix == ".parquet":
        return _parquet(made)
    if suffix in {".csv", ".tsv"}:
        file = io.StringIO()
        writer = csv.DictWriter(file, list(columns), delimiter="," if suffix == ".csv" else "\t")
        writer.writeheader()
        writer.writerows(made)
        return file.getvalue().encode()
    return (
        msgspec.json.encode(made)
        if array and suffix != ".jsonl"
        else b"".join(msgspec.json.encode(each) + b"\n" for each in made)
    )


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    return file.getvalue()


@cache
def _picture(form: str, size: tuple[int, int] = _PICTURE) -> bytes:
    from PIL import Image  # type: ignore[import-not-found]

    file, made = io.BytesIO(), Image.new("RGB", size)
    made.paste((1, 1, 1), (size[0] // 2, 0, *size))  # a mask of two classes too: programs divide by the largest value
    made.save(file, form)
    return file.getvalue()
