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
# Of a download's words: the folder that it names, and that it is a data set's or a space's.
_FOLDER = re.compile(
    r"--local[-_]dir[= ]+[\"']?([^\s\"']+)|\blocal_dir\s*=\s*[fr]?[\"']([^\"']+)[\"']"
    r"|^git\s.*https?://[^\s\"']+[\"']?[ \t]+[\"']?([^\s\"'#-][^\s\"']*)"
)
_NOT_A_MODEL = re.compile(r"repo[-_]type[= ]+[\"']?(?:dataset|space)|--dataset\b")
_LONGEST, _LONGEST_CALL = 400_000, 600


def with_downloads(launches: Sequence[Launch], content: str) -> tuple[Launch, ...]:
    """The launches; one that loads a folder whose path names no known model has the one model that the file downloads."""
    if len(content) > _LONGEST or not any(_is_folder(one.model) for one in launches):
        return tuple(launches)
    found = list(dict.fromkeys(_downloaded(content)))
    if len({name for name, _ in found}) != 1:
        return tuple(launches)
    name, folders = found[0][0], {folder for _, folder in found}
    served = {one.model for one in launches if _is_folder(one.model)}
    alone = len(served) == 1 and "" in folders  # where the download names no folder, the one that is served is it
    return tuple(
        _loaded(one, name) if one.model in served and (alone or any(_same(folder, one.model) for folder in folders)) else one
        for one in launches
    )


def _downloaded(content: str) -> Iterator[tuple[str, str]]:
    """What a file downloads and the folder that it names ("" for none): by commands and calls, else by constants."""
    plain = re.sub(r"\\\s*\n", " ", content)
    found = [
        (next(part for part in one.groups() if part).removesuffix(".git"), _folder(_rest(plain, one)))
        for one in _LINE.finditer(plain)
        if not _NOT_A_MODEL.search(_rest(plain, one))
    ]
    if not found and not _LINE.search(plain) and _DOWNLOADS.search(plain):
        found = [(name, "") for name in _CONSTANT.findall(plain)]
    yield from ((name, folder) for name, folder in found if not _NO_MODEL.search(name))


def _rest(content: str, found: re.Match[str]) -> str:
    """The words of a download: of a command to its line's end, of a call to its bracket."""
    ends = ")" if found[0].endswith(("'", '"')) and "(" in found[0] else "\n;&|"
    rest = content[found.start() : found.end() + _LONGEST_CALL]
    start = found.end() - found.start()
    place = min((at for end in ends if (at := rest.find(end, start)) >= 0), default=len(rest))
    return rest[:place]


def _folder(words: str) -> str:
    """The folder of ``--local-dir X``, ``local_dir="X"`` or ``git clone URL X``; "" for none or an open one."""
    told = _FOLDER.search(words)
    folder = next((part for part in told.groups() if part), "") if told else ""
    return "" if "$" in folder or "{" in folder else folder.rstrip("/")


def _same(folder: str, model: str) -> bool:
    """Whether the folder that a download names is the one that is served: the same path, or the end of it (``./x``, ``~/x``)."""
    given, held = (re.sub(r"^(?:\.|~|\$\{?\w+\}?)?/", "", one.rstrip("/")) for one in (folder, model))
    return bool(given) and (given == held or (not folder.startswith("/") and held.endswith(f"/{given}")))


def _is_folder(model: str) -> bool:
    """Whether a model is written as a folder of another machine, and its path names none that is known."""
    plain = re.sub(r"\$\{[^}]*\}", "", model)  # a lone variable is no folder
    return "/" in plain and is_elsewhere(model) and not model.lower().endswith(".gguf") and known_name(model) is None


def _loaded(launch: Launch, name: str) -> Launch:
    place = f"{launch.where}: the download step of the same file puts it in {launch.model[:60]}".lstrip(": ")
    return msgspec.structs.replace(launch, model=name, places={**launch.places, "model": place})
