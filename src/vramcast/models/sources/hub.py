"""A model on the hub: its config.json and the headers of its files by range requests, never their data.

``HF_ENDPOINT``, ``HF_HUB_OFFLINE``, ``HF_TOKEN`` and the hub's own cache (``HF_HOME``, ``HF_HUB_CACHE``) are respected as
huggingface_hub does. A GGUF repository is named with its type as llama.cpp does: ``org/repo:Q4_K_M``.
"""

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from vramcast.errors import MissingError, QuestionError
from vramcast.models.inventory import Model, Stored
from vramcast.models.sources import cache, gguf, safetensors
from vramcast.models.sources.cache import Fetched
from vramcast.models.sources.described import OLDER_SCHEMES, from_config, from_gguf, older_scheme
from vramcast.models.sources.http import AbsentError, Client, HttpRanges
from vramcast.models.sources.index import shard_names
from vramcast.models.sources.strict import LARGEST_CONFIG_BYTES, LARGEST_INDEX_BYTES, parse_json
from vramcast.units import MiB

_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHARD = re.compile(r"-\d{5}-of-\d{5}")
_FEW_BITS = re.compile(r"gptq|awq|int[348]|[348]-?bit", re.IGNORECASE)
_MOST_SHARDS = 400
_ASKED_AT_ONCE = 8
_LARGEST_LISTING_BYTES = 16 * MiB
_USUAL_GGUF = ("Q4_K_M", "Q8_0", "Q4_0", "BF16", "F16")


class Repo(msgspec.Struct, frozen=True, kw_only=True):
    """One repository at one revision, and how to ask for it. ``kind``: the GGUF type asked for, "" for the usual one."""

    id: str
    revision: str
    endpoint: str
    client: Client
    kind: str = ""

    def url(self, file: str) -> str:
        """Where the hub serves a file of this repository."""
        return f"{self.endpoint}/{self.id}/resolve/{quote(self.revision, safe='')}/{quote(file)}"

    @property
    def key(self) -> str:
        """What this question is kept under."""
        return f"{self.endpoint} {self.id} {self.revision} {self.kind.lower()}"


def read_hub(
    name: str, *, revision: str = "main", token: str | None = None, offline: bool | None = None, client: Client | None = None
) -> Model:
    """The model of a hub id, from what was fetched before, the hub's own cache, or the hub.

    ``offline``: never ask the network; None follows HF_HUB_OFFLINE. Raises AbsentError (a QuestionError) when the hub has no such
    repository, MissingError when the network, an access right or a token is needed, ConfigError or UnsafeFileError for files
    that are damaged.
    """
    repo = _repo(name, revision, client)
    kept = cache.load(repo.key)
    alone = _is_offline(offline)
    if kept is not None and (alone or _COMMIT.fullmatch(revision) or not cache.is_old(repo.key)):
        return _model(repo, kept)
    held = _in_hub_cache(repo)
    if held is not None and (held.stored or alone):
        return held
    if alone:
        raise MissingError(f"{repo.id} has not been fetched before and the hub is offline (HF_HUB_OFFLINE): unset it once")
    try:
        fetched = _fetch(repo if client else msgspec.structs.replace(repo, client=Client(token=token or _token())))
    except MissingError:
        if kept is None:
            raise
        return _model(repo, kept)
    cache.save(repo.key, fetched)
    return _model(repo, fetched)


def _repo(name: str, revision: str, client: Client | None) -> Repo:
    repo_id, _, kind = name.partition(":")
    if not _ID.fullmatch(repo_id) or ".." in repo_id or "--" in repo_id:
        raise QuestionError(
            f"{name[:80]!r} is not a hub id: expected organisation/name, or organisation/name:TYPE for GGUF files"
        )
    endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    return Repo(id=repo_id, revision=revision, endpoint=endpoint, client=client or Client(), kind=kind)


def _token() -> str | None:
    from huggingface_hub import get_token

    return get_token()


def _is_offline(asked: bool | None) -> bool:
    named = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return named.upper() in {"1", "ON", "YES", "TRUE"} if asked is None else asked


def _in_hub_cache(repo: Repo) -> Model | None:
    """What huggingface_hub downloaded earlier, with whatever of its weights is there."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    folder = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    if not (folder / f"models--{repo.id.replace('/', '--')}").is_dir():
        return None
    from huggingface_hub import try_to_load_from_cache

    from vramcast.models.sources.local import read_path

    held = try_to_load_from_cache(repo.id, "config.json", cache_dir=folder, revision=repo.revision)
    return msgspec.structs.replace(read_path(Path(held).parent), id=repo.id) if isinstance(held, str) else None


def _fetch(repo: Repo) -> Fetched:
    if repo.kind:
        return _fetch_gguf(repo)
    try:
        config = repo.client.get(repo.url("config.json"), largest=LARGEST_CONFIG_BYTES)
    except AbsentError as absent:
        if absent.code == "RevisionNotFound":
            raise AbsentError(f"{repo.endpoint}/{repo.id} has no revision {repo.revision!r}", absent.code) from None
        if absent.code != "EntryNotFound":
            raise
        return _fetch_gguf(repo)
    return Fetched(
        config=parse_json(config.body, repo.url("config.json")),
        scheme=_older_scheme(repo),
        stored=_headers(repo),
        commit=config.commit,
    )


def _older_scheme(repo: Repo) -> dict[str, Any] | None:
    """The scheme of a file beside the config; AutoGPTQ's and AutoAWQ's are asked for only where the id speaks of few bits."""
    for name in OLDER_SCHEMES if _FEW_BITS.search(repo.id) else OLDER_SCHEMES[:1]:
        if found := _optional(repo, name, largest=LARGEST_CONFIG_BYTES):
            return older_scheme(parse_json(found, repo.url(name)))
    return None


def _optional(repo: Repo, file: str, *, largest: int) -> bytes | None:
    try:
        return repo.client.get(repo.url(file), largest=largest).body
    except AbsentError:
        return None


def _headers(repo: Repo) -> tuple[Stored, ...]:
    """The tensors of all safetensors files, () when the repository has none in the usual place."""
    index = _optional(repo, "model.safetensors.index.json", largest=LARGEST_INDEX_BYTES)
    if index is None:
        try:
            return _header(repo, "model.safetensors")
        except AbsentError:
            return ()
    where = repo.url("model.safetensors.index.json")
    names = shard_names(parse_json(index, where, largest=LARGEST_INDEX_BYTES), where)
    if len(names) > _MOST_SHARDS:
        return ()
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        found = list(pool.map(lambda name: _header(repo, name), names))
    return tuple(stored for header in found for stored in header)


def _header(repo: Repo, file: str) -> tuple[Stored, ...]:
    return safetensors.read_header(HttpRanges(repo.client, repo.url(file)))


def _fetch_gguf(repo: Repo) -> Fetched:
    files = _listed(repo)
    chosen = choose_gguf(files, repo.kind, repo.id)
    heads = [HttpRanges(repo.client, repo.url(file), head=MiB) for file in chosen]
    headers = [gguf.read_header(head) for head in heads]
    whole = msgspec.structs.replace(headers[0], tensors=tuple(t for h in headers for t in h.tensors))
    return Fetched(gguf=whole, file=chosen[0], commit=heads[0].commit)


def _listed(repo: Repo) -> list[str]:
    url = f"{repo.endpoint}/api/models/{repo.id}/revision/{quote(repo.revision, safe='')}"
    raw = parse_json(repo.client.get(url, largest=_LARGEST_LISTING_BYTES).body, url, largest=_LARGEST_LISTING_BYTES)
    entries = raw.get("siblings")
    names = [e.get("rfilename") for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
    return [n for n in names if isinstance(n, str)]


def choose_gguf(files: list[str], kind: str, name: str) -> list[str]:
    """The GGUF file of the asked type (all parts of a split one); without a type the usual one, as llama.cpp picks it."""
    models = sorted(f for f in files if f.endswith(".gguf") and "mmproj" not in f)
    if not models:
        raise QuestionError(f"{name} holds neither a config.json nor GGUF files: name the repository of the model itself")
    for wanted in (kind,) if kind else _USUAL_GGUF:
        exact = re.compile(rf"(?<![A-Za-z0-9]){re.escape(wanted)}(?![A-Za-z0-9_])", re.IGNORECASE)
        found = [f for f in models if exact.search(_SHARD.sub("", f))]
        if found:
            stem = _SHARD.sub("", found[0])
            return [f for f in found if _SHARD.sub("", f) == stem]
    if kind or len({_SHARD.sub("", f) for f in models}) > 1:
        shown = ", ".join(models[:8])
        raise QuestionError(
            f"{name} has no single GGUF file of type {kind or _USUAL_GGUF[0]}: it holds {shown}; write {name}:TYPE"
        )
    return models


def _model(repo: Repo, fetched: Fetched) -> Model:
    at = f"@{fetched.commit[:12]}" if fetched.commit else ""
    where = f"{repo.endpoint}/{repo.id}{at}"
    if fetched.gguf is not None:
        return from_gguf(fetched.gguf, name=f"{repo.id}:{repo.kind}" if repo.kind else repo.id, where=f"{where} {fetched.file}")
    config = fetched.config or {}
    return msgspec.structs.replace(
        from_config(config, name=repo.id, where=where, quantization=fetched.scheme, stored=fetched.stored), id=repo.id
    )
