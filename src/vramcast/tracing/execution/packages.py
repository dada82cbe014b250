"""What a script that stopped for want of a package, or of another version of one, needs: from its own list if there is one."""

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path

# What is installed under another name than it is imported by (https://pypi.org/project/NAME).
_DISTRIBUTIONS = {
    "Bio": "biopython",
    "Levenshtein": "python-Levenshtein",
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "clip": "git+https://github.com/openai/CLIP",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "git": "GitPython",
    "google.api_core": "google-api-core",
    "google.cloud": "google-cloud-storage",
    "google.protobuf": "protobuf",
    "hydra": "hydra-core",
    "ldm": "git+https://github.com/CompVis/latent-diffusion",
    "pl_bolts": "lightning-bolts",
    "segment_anything": "git+https://github.com/facebookresearch/segment-anything",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "taming": "git+https://github.com/CompVis/taming-transformers",
    "tap": "typed-argument-parser",
    "umap": "umap-learn",
    "warmup_scheduler": "git+https://github.com/ildoonet/pytorch-gradual-warmup-lr",
    "yaml": "PyYAML",
}
# Modules that programs write themselves: packages of these names are somebody else's.
_OF_ONES_OWN = frozenset({
    "args", "arguments", "callbacks", "common", "conf", "config", "configs", "constants", "core", "data", "dataloader", "dataset",
    "engine", "eval", "evaluation", "helper", "helpers", "layers", "lib", "loss", "losses", "metrics", "model",
    "modeling", "models", "modules", "networks", "options", "optim", "src", "tools", "train", "trainer", "training", "util",
    "utils",
})  # fmt: skip
_WITHOUT_A_GPU = frozenset({"triton"})
_LISTS = ("*requirements*.txt", "environment*.y*ml", "pyproject.toml", "setup.py")
_MOST_FOLDERS = 400


def without_package(failure: BaseException, start: Path | None = None) -> str:
    """Where a failure is a package that is not here, or another version of it: what to install, or where it is; else ""."""
    name, place = failure.name if isinstance(failure, ImportError) else None, start or Path.cwd()
    if not name:
        return ""
    top = name.partition(".")[0]
    if not isinstance(failure, ModuleNotFoundError):
        return _other_version(top, place) if "cannot import name" in str(failure) else ""
    if top != name and find_spec(top) is not None:
        return _other_version(top, place)
    near = _folder_of(top, place)
    if near is not None:
        return f"; it is a folder of the program: PYTHONPATH={near}"
    if top in _OF_ONES_OWN:
        return (
            f"; no file of the program is called {top}.py here: start it where {top}.py lies, or name that folder in PYTHONPATH"
        )
    return f"; it is not installed here: {_installed_by(name, place)}"


def is_installable(package: str) -> bool:
    """Whether a package that is not here is none of the program's own modules."""
    return package.partition(".")[0] not in _OF_ONES_OWN and _folder_of(package, Path.cwd()) is None


def own_package(package: str) -> Path | None:
    """The folder that a program's own package of that name lies in, as its ``pip install -e .`` would put it on the path.

    It is the working folder, its ``src``, or one in which that lies with the program's list of what it needs.
    """
    here = Path.cwd()
    above = [place for place in islice(here.parents, 2) if next(_lists_in(place), None) is not None]
    for place in (here, here / "src", *above):
        if package not in _OF_ONES_OWN and (place / package / "__init__.py").is_file():
            return place
    return None


def _installed_by(name: str, start: Path) -> str:
    """The line that installs a package: as the program's own list names it, else its known name, else that list, else its own."""
    top = name.partition(".")[0]
    known = next((_DISTRIBUTIONS[each] for each in (name, top) if each in _DISTRIBUTIONS), "")
    listed = _listed(known or top, start)
    if listed is not None:
        return f"pip install '{known or top}{listed[0]}' ({listed[1]} lists it)"
    if known:
        return f"pip install {known}"
    if top in _WITHOUT_A_GPU:
        return f"pip install {top} (it imports without a GPU; its kernels are not launched)"
    requirements = next((file.name for file in _lists(start) if file.suffix == ".txt"), None)
    return f"pip install -r {requirements}" if requirements else f"pip install {top}, if the package that has it is called so"


def _other_version(name: str, start: Path) -> str:
    """What a name that a package does not have says: which version is here, and which one the program's requirements name."""
    try:
        here = version(_DISTRIBUTIONS.get(name, name))
    except PackageNotFoundError:
        return ""
    listed = _listed(_DISTRIBUTIONS.get(name, name), start)
    asked = (
        f"{listed[1]} asks {name}{listed[0]}" if listed and listed[0] else "install the version that the program was written for"
    )
    return f"; {name} {here} is here: {asked}"


def _listed(name: str, start: Path) -> tuple[str, str] | None:
    """What a program's own list asks of a package's version ("" for any), and the list's name; None where none names it."""
    spelt = re.sub(r"[-_.]+", "[-_.]+", re.escape(name).replace("\\", ""))
    version_asked = r"((?:[=<>~!]=?\s*[\w.*+!-]+(?:\s*,\s*[<>~!]=?\s*[\w.*+!-]+)*)?)(?:=\w+)?"  # conda adds a build
    asked = re.compile(
        rf"""^[\s\-"']*{spelt}(?:\[[\w,]+\])?\s*{version_asked}["',;\s]*(?:#.*|;.*)?$""", re.IGNORECASE | re.MULTILINE
    )
    for file in _lists(start):
        if found := asked.search(file.read_text(errors="replace")):
            return re.sub(r"^=(?!=)", "==", found[1].replace(" ", "")), file.name
    return None


def _lists(start: Path) -> Iterator[Path]:
    """The files beside and above a program that may list what it needs."""
    for place in (start, *islice(start.parents, 2)):
        yield from _lists_in(place)


def _lists_in(place: Path) -> Iterator[Path]:
    yield from sorted(chain.from_iterable(place.glob(pattern) for pattern in _LISTS))


def _folder_of(module: str, start: Path) -> Path | None:
    """The folder at or two levels around a place that holds a module of that name."""
    for place in islice(chain((start, start.parent), start.glob("*"), start.glob("*/*")), _MOST_FOLDERS):
        if place.is_dir() and ((place / module / "__init__.py").is_file() or (place / f"{module}.py").is_file()):
            return place
    return None
