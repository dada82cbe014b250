"""A model on disk: a folder, a config.json, a safetensors index or file, or a GGUF file (any shard of one)."""

import re
from pathlib import Path

import msgspec

from vramcast.errors import QuestionError
from vramcast.models.inventory import Model, Stored
from vramcast.models.sources import gguf, safetensors
from vramcast.models.sources.described import OLDER_SCHEMES, from_config, from_gguf, older_scheme
from vramcast.models.sources.index import inside, shard_names
from vramcast.models.sources.ranges import open_ranges
from vramcast.models.sources.strict import LARGEST_INDEX_BYTES, read_json
from vramcast.untrusted import existing_path, printable

_SPLIT = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf")
_MOST_PARTS = 1_000
_INDEX = "model.safetensors.index.json"
_EXPECTED = "expected a folder with a config.json, a config.json, a .safetensors file or index, or a .gguf file"


def read_path(path: Path) -> Model:
    """The model at that path, exact where its files' headers are at hand.

    Raises QuestionError when there is none, ConfigError or UnsafeFileError when a file is damaged or hostile.
    """
    found = existing_path(path)
    if found is None or not (found.is_dir() or found.is_file()):
        raise QuestionError(f"no model at {printable(str(path))[:200]}: {_EXPECTED}")
    if found.is_dir():
        return _folder(path)
    if path.suffix == ".gguf":
        return read_gguf(path)
    if path.suffix == ".safetensors" or path.name.endswith(".safetensors.index.json"):
        return _beside(path)
    return _config(path, ())


def read_gguf(path: Path) -> Model:
    """The model of a GGUF file; the shards of a split one are read together."""
    shards = _shards(path)
    headers = [_gguf_header(shard) for shard in shards]
    tensors = tuple(t for header in headers for t in header.tensors)
    whole = msgspec.structs.replace(headers[0], tensors=tensors)
    return from_gguf(whole, name=path.stem, where=str(path))


def stored_in(folder: Path) -> tuple[Stored, ...]:
    """Every tensor of the folder's safetensors files, () when it holds none or not all of them."""
    index = folder / _INDEX
    if index.is_file():
        return _stored_by(index)
    single = folder / "model.safetensors"
    return _header(single) if single.is_file() else ()


def _folder(path: Path) -> Model:
    if (path / "config.json").is_file():
        return _config(path / "config.json", stored_in(path))
    if (path / "params.json").is_file():
        return _config(path / "params.json", ())
    _refuse_other(path)
    files = sorted(path.glob("*.gguf"))
    models = [f for f in files if not f.name.startswith("mmproj")]
    if not models:
        raise QuestionError(f"no model in {path}: {_EXPECTED}")
    if len(models) > len(_shards(models[0])):
        raise QuestionError(f"{path} holds several GGUF files: name one of {', '.join(f.name for f in models[:6])}")
    return read_gguf(models[0])


def _refuse_other(path: Path) -> None:
    """Folders that hold something else than a model. Raises QuestionError saying what to ask instead."""
    adapter, pipeline = path / "adapter_config.json", path / "model_index.json"
    if adapter.is_file():
        said = read_json(adapter)
        base, rank = said.get("base_model_name_or_path"), said.get("r")
        raise QuestionError(
            f"{path} holds an adapter ({said.get('peft_type', 'LORA')}, rank {rank}) and no model: ask about its base, "
            f"{str(base)[:120]!r}; vramcast serve BASE --enable-lora --max-lora-rank {rank} counts the adapter's slots too"
        )
    if pipeline.is_file():
        parts = [name for name in read_json(pipeline) if existing_path(path / name / "config.json")]
        raise QuestionError(
            f"{path} holds a pipeline of several models: name one of its folders, {', '.join(parts) or 'none here'}"
        )


def _beside(path: Path) -> Model:
    """A safetensors file or index says what is stored; the config.json beside it says what that is."""
    config = path.parent / "config.json"
    if not config.is_file():
        raise QuestionError(f"{path} has no config.json beside it: its tensors have names and shapes but no architecture; add it")
    return _config(config, _header(path) if path.suffix == ".safetensors" else _stored_by(path))


def _config(file: Path, stored: tuple[Stored, ...]) -> Model:
    older = [found for name in OLDER_SCHEMES if (found := file.parent / name).is_file()] if file.name == "config.json" else []
    scheme = older_scheme(read_json(older[0])) if older else None
    model = from_config(read_json(file), name=file.resolve().parent.name, where=str(file), quantization=scheme, stored=stored)
    if stored or not model.tied or not _names_head(file.parent):
        return model
    return msgspec.structs.replace(model, head_stored=True)


def _names_head(folder: Path) -> bool:
    """Whether the folder's index lists an output head: a tied one is then stored twice."""
    indexes = [f for f in (folder / _INDEX, folder / "pytorch_model.bin.index.json") if f.is_file()]
    places = read_json(indexes[0], largest=LARGEST_INDEX_BYTES).get("weight_map") if indexes else None
    return isinstance(places, dict) and any(name.endswith("lm_head.weight") for name in places)


def _stored_by(index: Path) -> tuple[Stored, ...]:
    files = [
        inside(index.parent, name, str(index)) for name in shard_names(read_json(index, largest=LARGEST_INDEX_BYTES), str(index))
    ]
    if not all(f.is_file() and f.suffix == ".safetensors" for f in files):
        return ()
    return tuple(stored for file in files for stored in _header(file))


def _header(file: Path) -> tuple[Stored, ...]:
    with open_ranges(file) as ranges:
        return safetensors.read_header(ranges)


def _gguf_header(file: Path) -> gguf.Header:
    with open_ranges(file) as ranges:
        return gguf.read_header(ranges)


def _shards(path: Path) -> list[Path]:
    split = _SPLIT.fullmatch(path.name)
    if split is None:
        return [path]
    files = [path.with_name(f"{split[1]}-{n:05d}-of-{split[3]}.gguf") for n in range(1, min(int(split[3]), _MOST_PARTS) + 1)]
    if path not in files:
        raise QuestionError(f"{path.name} is part {split[2]} of {split[3]}, which cannot be: name the file of one of its parts")
    missing = [f.name for f in files if not f.is_file()]
    if missing:
        raise QuestionError(f"{path.name} is one of {len(files)} parts and {missing[0]} is not beside it: fetch all parts")
    return files
