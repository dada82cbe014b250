"""Configs, tokenizers and preprocessors that a program asks the hub for: where it cannot be had, made-up ones in their place.

The config is the published one, as far as it is known here; the tokenizer has as many tokens and cuts texts as finely, and no
more; weights are never asked for. What is not known by name fails as it did.
"""

import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.imported import when_imported
from vramcast.tracing.execution.stand_ins.reachable import look_once
from vramcast.tracing.published.configs import Published, published
from vramcast.tracing.published.preprocessors import preprocessor_file
from vramcast.tracing.published.tokenizers import tokenizer_files

_CHATS = ("instruct", "chat", "-it", "zephyr", "vicuna")


class MadeUpHub:
    """A folder in which what stands for a repository is written when it is asked for the first time."""

    def __init__(self, folder: Path, session: Session) -> None:
        self._folder, self._session = folder / "made_up_hub", session
        self._native = open  # of before anything was put in its place

    def folder(self, name: Any, part: str = "", *, what: str) -> Path | None:
        """A folder with the files of a repository's part; None where the name is not known. ``what`` is said to be made up."""
        if not isinstance(name, str) or Path(name).is_dir():
            return None
        found = published(name)
        config = found and found.part(part)
        if found is None or config is None:
            return None
        place = self._folder / name.replace("/", "--") / part
        if not place.is_dir():
            self._write(place, _files(config, found, name, part))
        known = f"that of {found.source}" if found.source.lower() != name.lower() else "the published one"
        self._session.notes[f"{name} is not here: its config is {known}; {what}"] = None
        return place

    def _write(self, place: Path, files: dict[str, str]) -> None:
        place.mkdir(parents=True)
        for name, text in files.items():
            with self._native(place / name, "w", encoding="utf-8") as file:
                file.write(text)


_WEIGHTS = "weights have no values"
_TOKENIZER = "its tokenizer is made up (as many tokens, about 1.35 for a word)"
_PREPARED = "its preprocessor is its class's own"


def _files(config: dict[str, Any], found: Published, name: str, part: str) -> dict[str, str]:
    """The text of every file that a library would look for beside the config."""
    named = {"_class_name": config["_class_name"]} if "_class_name" in config else {}
    files = {"config.json": json.dumps(config), "scheduler_config.json": json.dumps(config)}
    if found.folders and not part:
        files["model_index.json"] = json.dumps(named)
    if "model_type" in config:
        files |= tokenizer_files(config, chat=any(word in name.lower() for word in _CHATS))
        files |= preprocessor_file(config)
    return files


def install(session: Session, folder: Path) -> None:
    """Answer transformers and diffusers where they find neither a file nor a network, with a note of what was made up."""
    hub = MadeUpHub(folder, session)
    when_imported("transformers.configuration_utils", functools.partial(_configs, hub))
    when_imported("transformers.tokenization_utils_base", functools.partial(_tokenizers, hub))
    when_imported("transformers.models.auto.tokenization_auto", functools.partial(_auto_tokenizers, hub))
    for module, kinds in _PREPARING.items():
        when_imported(module, functools.partial(_preparing, hub, kinds))
    when_imported("diffusers.configuration_utils", functools.partial(_diffusers, hub))


_PREPARING = {
    "transformers.models.auto.image_processing_auto": ("AutoImageProcessor",),
    "transformers.models.auto.feature_extraction_auto": ("AutoFeatureExtractor",),
    "transformers.models.auto.processing_auto": ("AutoProcessor",),
    "transformers.image_processing_base": ("ImageProcessingMixin",),
    "transformers.feature_extraction_utils": ("FeatureExtractionMixin",),
    "transformers.processing_utils": ("ProcessorMixin",),
}


def _otherwise(owner: Any, method: str, answer: Callable[..., Any]) -> None:
    """Put ``answer`` behind a class method: it is asked where that fails, and None from it leaves the failure as it was."""
    original = owner.__dict__[method].__func__
    first = list(inspect.signature(original).parameters)[1]

    @functools.wraps(original)
    def call(cls: Any, *args: Any, **options: Any) -> Any:
        name, *more = args if args else (options.pop(first),)
        if isinstance(name, str) and not Path(name).exists():
            look_once()
        try:
            return original(cls, name, *more, **options)
        except Exception as failure:
            made = answer(functools.partial(original, cls), cls, name, options)
            if made is None:
                failure.add_note(f"hub: '{name}'")
                raise
            return made

    setattr(owner, method, classmethod(call))


def _configs(hub: MadeUpHub, module: Any) -> None:
    def answer(original: Any, cls: Any, name: Any, options: dict[str, Any]) -> Any:
        del cls
        part = options.pop("subfolder", "")
        place = hub.folder(name, part, what=_WEIGHTS)
        return None if place is None else original(str(place), **options)

    owner = getattr(module, "PreTrainedConfig", None) or module.PretrainedConfig
    _otherwise(owner, "get_config_dict", answer)


def _fast(hub: MadeUpHub, name: Any, options: dict[str, Any]) -> Any:
    """The made-up tokenizer of a name, whatever class of tokenizers was asked for it."""
    from transformers import PreTrainedTokenizerFast

    part = options.pop("subfolder", "")
    place = hub.folder(name, part, what=_TOKENIZER)
    if place is None:
        return None
    passed = {key: value for key, value in options.items() if key not in _OF_THE_HUB}
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(place), **passed)
    tokenizer.name_or_path = name
    return tokenizer


_OF_THE_HUB = frozenset({
    "revision", "token", "use_auth_token", "cache_dir", "local_files_only", "force_download", "trust_remote_code", "use_fast",
    "config", "tokenizer_type", "_from_auto",
})  # fmt: skip


def _tokenizers(hub: MadeUpHub, module: Any) -> None:
    _unless_had(hub, module.PreTrainedTokenizerBase)


def _auto_tokenizers(hub: MadeUpHub, module: Any) -> None:
    _unless_had(hub, module.AutoTokenizer)


def _unless_had(hub: MadeUpHub, owner: Any) -> None:
    """The made-up tokenizer where the repository has no file here: transformers 5 makes an empty one then, and says nothing."""
    original = owner.__dict__["from_pretrained"].__func__

    @functools.wraps(original)
    def call(cls: Any, name: Any, *args: Any, **options: Any) -> Any:
        if isinstance(name, str) and not Path(name).exists() and not _has_tokenizer(name, options):
            made = _fast(hub, name, options)
            if made is not None:
                return made
        try:
            return original(cls, name, *args, **options)
        except Exception as failure:
            failure.add_note(f"hub: '{name}'")
            raise

    owner.from_pretrained = classmethod(call)


def _has_tokenizer(name: str, options: dict[str, Any]) -> bool:
    """Whether a repository's tokenizer is in the cache or can be fetched, as the script asks for it."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    look_once()
    asked = {key: options[key] for key in ("cache_dir", "revision", "token", "subfolder", "local_files_only") if options.get(key)}
    for file in ("tokenizer_config.json", "tokenizer.json", "vocab.json", "vocab.txt", "tokenizer.model", "spiece.model"):
        try:
            hf_hub_download(name, file, **asked)
        except LocalEntryNotFoundError:  # not in the cache, and no network
            continue
        except EntryNotFoundError:  # the repository answers, and has no such file
            continue
        except (OSError, ValueError):  # no such repository, no access to it, or no name of one
            return False
        return True
    return False


def _preparing(hub: MadeUpHub, kinds: tuple[str, ...], module: Any) -> None:
    def answer(original: Any, cls: Any, name: Any, options: dict[str, Any]) -> Any:
        del cls
        place = hub.folder(name, options.pop("subfolder", ""), what=_PREPARED)
        return None if place is None else original(str(place), **options)

    for kind in kinds:
        _otherwise(getattr(module, kind), "from_pretrained", answer)


def _diffusers(hub: MadeUpHub, module: Any) -> None:
    def answer(original: Any, cls: Any, name: Any, options: dict[str, Any]) -> Any:
        del cls
        place = hub.folder(name, options.pop("subfolder", None) or "", what=_WEIGHTS)
        return None if place is None else original(str(place), **options)

    _otherwise(module.ConfigMixin, "load_config", answer)
