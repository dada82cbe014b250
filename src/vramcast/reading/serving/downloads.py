"""The hub's model that lies in a folder: what the file's own download step puts there.

``hf download org/name --local-dir /models/x``, ``snapshot_download("org/name", local_dir=X)``, ``git clone https://huggingface.co/org/name``,
and a program of one model constant that downloads into the folder it serves. Nothing is downloaded here.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from vramcast.reading.elsewhere import is_elsewhere, known_name
from vramcast.reading.serving.launch import Launch

_ID = r"[A-Za-z0-9][\w.-]{0,60}/[\w.-]{2,90}"
_LINE = re.compile(
    rf"(?:huggingface-cli|hf|modelscope)\s+download\s+(?:--model[= ])?[\"']?({_ID})[\"']?(?![\w/])"
    rf"|git\s+(?:lfs\s+)?clone\s+(?:--?\S+\s+)*[\"']?https?://(?:huggingface\.co|hf-mirror\.com|(?:www\.)?modelscope\.cn)/(?:models/)?({_ID})"
    rf"|(?:snapshot_download|hf_hub_download)\(\s*(?:repo_id\s*=\s*|model_id\s*=\s*)?[fr]?[\"']({_ID})[\"']"
)
_CONSTANT = re.compile(
    rf"^[ \t]*(?:export\s+)?\w{{0,30}}(?:MODEL|REPO|CHECKPOINT)\w{{0,30}}\s*(?::\s*str\s*)?=\s*[\"']?({_ID})[\"']?\s*(?:#.*)?$",
    re.M | re.I,
)
_DOWNLOADS = re.compile(r"snapshot_download|hf_hub_download|huggingface-cli download|\bhf download|modelscope download")
_NO_MODEL = re.compile(r"draft|eagle|mmproj|tokenizer|lora|adapter|embed|rerank|whisper", re.I)
_LONGEST = 400_000


def with_downloads(launches: Sequence[Launch], content: str) -> tuple[Launch, ...]:
    """The launches; one that loads a folder whose path names no known model has the one model that the file downloads."""
    if len(content) > _LONGEST or not any(_is_folder(one.model) for one in launches):
        return tuple(launches)
    names = list(dict.fromkeys(_downloaded(content)))
    if len(names) != 1:
        return tuple(launches)
    return tuple(_loaded(one, names[0]) if _is_folder(one.model) else one for one in launches)


def _downloaded(content: str) -> Iterator[str]:
    """What a file downloads, by its commands and calls; else by its constants that name a model."""
    plain = re.sub(r"\\\s*\n", " ", content)
    found = [next(part for part in one if part).removesuffix(".git") for one in _LINE.findall(plain)]
    if not found and _DOWNLOADS.search(plain):
        found = _CONSTANT.findall(plain)
    yield from (name for name in found if not _NO_MODEL.search(name))


def _is_folder(model: str) -> bool:
    """Whether a model is written as a folder of another machine, and its path names none that is known."""
    plain = re.sub(r"\$\{[^}]*\}", "", model)  # a lone variable is no folder
    return "/" in plain and is_elsewhere(model) and not model.lower().endswith(".gguf") and known_name(model) is None


def _loaded(launch: Launch, name: str) -> Launch:
    place = f"{launch.where}: the download step of the same file puts it in {launch.model[:60]}".lstrip(": ")
    return msgspec.structs.replace(launch, model=name, places={**launch.places, "model": place})
