"""Configs, tokenizers and preprocessors that a program asks the hub for: where it cannot be had, made-up ones in their place.

The config is the published one, as far as it is known here; the tokenizer has as many tokens and cuts texts as finely, and no
more; weights are never asked for. What is not known by name fails as it did.
"""

import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vramcast.tracing.execution.advice import is_network
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.imported import when_imported
from vramcast.tracing.execution.stand_ins.reachable import look_once
from vramcast.tracing.published.configs import Published, is_published, published
from vramcast.tracing.published.preprocessors import preprocessor_file
from vramcast.tracing.published.tokenizers import tokenizer_files
from vramcast.tracing.published.words import TOKENS_A_WORD

_CHATS = ("instruct", "chat", "-it", "zephyr", "vicuna")


class MadeUpHub:
    """A folder in which what stands for a repository is written when it is asked for the first time."""

    def __init__(self, folder: Path, session: Session) -> None:
        self._folder, self._session = folder / "made_up_hub", session
        self.within = False

    def made(self, name: Any) -> bool:
        """Whether a path is one of a repository that was made up."""
        return str(name).startswith(f"{self._folder}/")

    @contextmanager
    def inside(self) -> Iterator[None]:
        """While a tokenizer is made of its files, none of them is asked for again."""
        self.within = True
        try:
            yield
        finally:
            self.within = False

    def folder(self, name: Any, part: str = "") -> Path | None:
        """A folder with the files of a repository's part; None where the name is not known."""
        if not isinstance(name, str) or Path(name).is_dir():
            return None
        if _is_path(name) and not is_copy_elsewhere(name):
            return None
        found = published(name)
        config = found and found.part(part)
        if found is None or (config is None and (part or not found.folders)):
            return None
        place = self._folder / name.strip("./").replace("/", "--") / part
        if not place.is_dir():
            place.mkdir(parents=True)
            for file, text in _files(config or {}, found, name, part).items():
                (place / file).write_text(text, encoding="utf-8")
        return place

    def tell(self, name: Any, what: str) -> None:
        """Note that a repository was made up, once that did; ``what`` is said of its parts."""
        found = published(name) if isinstance(name, str) else None
        if found is None:
            return
        known = f"that of {found.source}" if found.source.lower() != name.lower() else "the published one"
        self._session.notes[f"{name} is not here: its config is {known}; {what}"] = None

    def tell_failure(self, name: Any, failure: Exception) -> None:
        """Note that what is made up for a repository did not do either: the failure told is the script's own."""
        self._session.notes[f"what is made up for {name} failed as well ({type(failure).__name__}: {str(failure)[:120]})"] = None


def _is_path(name: str) -> bool:
    """Whether a name can be no id of the hub's: that has one stroke at most, and none in front."""
    return name.startswith(("/", "./", "../", "~")) or name.rstrip("/").count("/") > 1


def is_copy_elsewhere(name: Any) -> bool:
    """Whether a name is that of a folder which is not here, and which is called as a published model is."""
    return isinstance(name, str) and _is_path(name) and not Path(name).exists() and is_published(Path(name).name)


_WEIGHTS = "weights have no values"
_TOKENIZER = f"its tokenizer is made up (as many tokens, about {TOKENS_A_WORD:.2f} for a word)"
_PREPARED = "its preprocessor is its class's own"


def _files(config: dict[str, Any], found: Published, name: str, part: str) -> dict[str, str]:
    """The text of every file that a library would look for beside the config."""
    if found.folders and not part:
        parts = {name: ["", each.get("_class_name", "")] for name, each in found.folders.items()}
        return {"model_index.json": json.dumps(parts)}
    files = {"config.json": json.dumps(config), "scheduler_config.json": json.dumps(config)}
    if "model_type" in config:
        files |= tokenizer_files(config, chat=any(word in name.lower() for word in _CHATS))
        files |= preprocessor_file(config)
    return files


def install(session: Session, folder: Path) -> None:
    """Answer transformers and diffusers where they find neither a file nor a network, with a note of what was made up."""
    hub = MadeUpHub(folder, session)
    when_imported("huggingface_hub.file_download", functools.partial(_downloads, hub))
    when_imported("transformers.utils.hub", _copies)
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


def _otherwise(hub: MadeUpHub, owner: Any, method: str, what: str) -> None:
    """Ask a class method for the made-up folder where it finds no network; a name that is not known leaves the failure."""
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
            made = _made(hub, functools.partial(original, cls), name, options) if is_network(failure) else None
            if made is not None:
                hub.tell(name, what)
                return made
            failure.add_note(f"hub: '{name}'")
            raise

    setattr(owner, method, classmethod(call))


def _made(hub: MadeUpHub, original: Callable[..., Any], name: Any, options: dict[str, Any]) -> Any:
    """What a class method makes of the made-up folder; None where there is none, or it does not do (noted)."""
    place = hub.folder(name, options.get("subfolder") or "")
    if place is None:
        return None
    try:
        return original(str(place), **{key: value for key, value in options.items() if key != "subfolder"})
    except Exception as failure:
        hub.tell_failure(name, failure)
        return None


def _downloads(hub: MadeUpHub, module: Any) -> None:
    """A file of a repository by itself: those that are made up, and the list of a pipeline's parts."""
    original = module.hf_hub_download

    @functools.wraps(original)
    def download(repo_id: Any, filename: Any, *args: Any, **options: Any) -> Any:
        look_once()
        try:
            return original(repo_id, filename, *args, **options)
        except Exception as failure:
            part, _, file = str(filename).rpartition("/")
            place = hub.folder(repo_id, options.get("subfolder") or part) if is_network(failure) else None
            if place is None or not (place / file).is_file():
                failure.add_note(f"hub: '{repo_id}'")
                raise
            hub.tell(repo_id, _WEIGHTS)
            return str(place / file)

    download.before_made_up = original  # type: ignore[attr-defined]
    module.hf_hub_download = download
    sys.modules["huggingface_hub"].hf_hub_download = download  # type: ignore[attr-defined]


def _copies(module: Any) -> None:
    """Ask the hub for the published model where a script names a copy of it in a folder that is not here.

    Transformers' own methods ask the hub itself and for a whole folder where it is silent, not for one file after another.
    """
    original = module.cached_files
    module.hf_hub_download = getattr(module.hf_hub_download, "before_made_up", module.hf_hub_download)

    @functools.wraps(original)
    def find(path_or_repo_id: Any, *args: Any, **options: Any) -> Any:
        found = published(path_or_repo_id) if is_copy_elsewhere(path_or_repo_id) else None
        return original(found.source if found is not None else path_or_repo_id, *args, **options)

    module.cached_files = find


def _configs(hub: MadeUpHub, module: Any) -> None:
    owner = getattr(module, "PreTrainedConfig", None) or module.PretrainedConfig
    _otherwise(hub, owner, "get_config_dict", _WEIGHTS)


def _fast(hub: MadeUpHub, cls: Any, name: Any, options: dict[str, Any]) -> Any:
    """The made-up tokenizer of a name or of a made-up folder: of the class that was asked where that takes it, else of any."""
    from transformers import PreTrainedTokenizerFast

    place = name if hub.made(name) else hub.folder(name, options.get("subfolder") or "")
    if place is None:
        return None
    passed = {key: value for key, value in options.items() if key not in _OF_THE_HUB}
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(place), **passed)
    tokenizer.name_or_path = str(name)
    hub.tell(name, _TOKENIZER)
    return _with_methods(tokenizer, cls)


def _with_methods(tokenizer: Any, cls: Any) -> Any:
    """A tokenizer with the methods of the model's class that was asked for, and what those start from."""
    import transformers

    kind = getattr(transformers, f"{cls.__name__.removesuffix('Fast')}Fast", cls)
    if issubclass(kind, transformers.PreTrainedTokenizerFast):
        tokenizer.__class__ = kind
        for name, parameter in inspect.signature(kind.__init__).parameters.items():
            if not hasattr(tokenizer, name) and parameter.default is not inspect.Parameter.empty:
                setattr(tokenizer, name, parameter.default)
    for name in ("language", "task"):
        if hasattr(kind, "set_prefix_tokens") and not hasattr(tokenizer, name):
            setattr(tokenizer, name, None)
    return tokenizer


_OF_THE_HUB = frozenset({
    "revision", "token", "use_auth_token", "cache_dir", "local_files_only", "force_download", "trust_remote_code", "use_fast",
    "config", "tokenizer_type", "_from_auto", "subfolder",
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
        lacking = isinstance(name, str) and not Path(name).exists() and not _has_tokenizer(name, options)
        if (lacking or hub.made(name)) and not hub.within:
            with hub.inside():
                made = _fast(hub, cls, name, options)
            if made is not None:
                return made
        try:
            return original(cls, name, *args, **options)
        except Exception as failure:
            failure.add_note(f"hub: '{name}'")
            raise

    owner.from_pretrained = classmethod(call)


def _has_tokenizer(name: str, options: dict[str, Any]) -> bool:
    """Whether a repository's tokenizer is in the cache or a network answers for it, as the script asks for it.

    What the hub itself says (no such repository, no access) is the library's to tell.
    """
    from huggingface_hub.file_download import hf_hub_download

    if is_copy_elsewhere(name):
        return False
    look_once()
    fetch = inspect.unwrap(hf_hub_download)  # not what stands for it here
    asked = {key: options[key] for key in ("cache_dir", "revision", "token", "subfolder", "local_files_only") if options.get(key)}
    for file in ("tokenizer_config.json", "tokenizer.json", "vocab.json", "vocab.txt", "tokenizer.model", "spiece.model"):
        try:
            fetch(name, file, **asked)
        except Exception as failure:
            if is_network(failure):  # the cache may have the next file
                continue
        return True
    return False


def _preparing(hub: MadeUpHub, kinds: tuple[str, ...], module: Any) -> None:
    for kind in kinds:
        _otherwise(hub, getattr(module, kind), "from_pretrained", _PREPARED)


def _diffusers(hub: MadeUpHub, module: Any) -> None:
    _otherwise(hub, module.ConfigMixin, "load_config", _WEIGHTS)
