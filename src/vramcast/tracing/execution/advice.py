"""What a script that stopped for want of a network or of a package can be given instead."""

import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

_KINDS = frozenset({
    "URLError", "gaierror", "ConnectionError", "ConnectError", "NewConnectionError", "MaxRetryError", "NameResolutionError",
    "OfflineModeIsEnabled", "LocalEntryNotFoundError", "ClientConnectorError", "ClientConnectorDNSError", "EntryNotFoundError",
})  # fmt: skip
_WORDS = re.compile(
    r"couldn't (connect|reach)|[Oo]ffline ?[Mm]ode|Name or service not known|Temporary failure in name resolution"
)
_NAMED = re.compile(r"'([\w.-]+/[\w.-]+)'")
_ADDRESS = re.compile(r"https?://[\w.:-]+(?:/[^\s'\"<>)]*)?")
_HUB = "huggingface.co"


def without_network(failure: BaseException) -> str:
    """Where a failure is that of a network that is not here: the line that makes its file local; else ""."""
    causes = list(_chain(failure))
    if not any(type(each).__name__ in _KINDS or _WORDS.search(str(each)) for each in causes):
        return ""
    told = " ".join(part for cause in causes for part in (str(cause), *getattr(cause, "__notes__", ())))
    if (named := _NAMED.search(told)) and ("hub" in told.lower() or _HUB in told):
        return (
            f"; it asks the hub: once on a machine with a network, hf download {named[1]} --local-dir DIR, and name DIR instead"
        )
    address = next((found for found in _ADDRESS.findall(told) if _HUB not in found), "")
    what = f"{address} " if address else ""
    return f"; it asks the network: fetch {what}once, put it where the script looks, and trace again"


def _chain(failure: BaseException) -> Iterator[BaseException]:
    seen, each = set[int](), failure
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or each.__context__  # type: ignore[assignment]


# What is installed under another name than it is imported by; all else has one name (https://pypi.org/project/NAME).
_DISTRIBUTIONS = {
    "Bio": "biopython", "PIL": "pillow", "bs4": "beautifulsoup4", "clip": "git+https://github.com/openai/CLIP",
    "cv2": "opencv-python", "dateutil": "python-dateutil", "dotenv": "python-dotenv", "faiss": "faiss-cpu", "git": "GitPython",
    "hydra": "hydra-core", "lightning_fabric": "lightning", "pl_bolts": "lightning-bolts",
    "pytorch_msssim": "pytorch-msssim", "serial": "pyserial", "skimage": "scikit-image", "sklearn": "scikit-learn",
    "umap": "umap-learn", "yaml": "PyYAML", "torch_scatter": "torch-scatter",
    "warmup_scheduler": "git+https://github.com/ildoonet/pytorch-gradual-warmup-lr",
    "ldm": "git+https://github.com/CompVis/latent-diffusion",
    "taming": "git+https://github.com/CompVis/taming-transformers", "google.protobuf": "protobuf",
    "google.api_core": "google-api-core", "google.cloud": "google-cloud-storage", "Levenshtein": "python-Levenshtein",
    "segment_anything": "git+https://github.com/facebookresearch/segment-anything", "pytorch_lightning": "pytorch-lightning",
}  # fmt: skip
_MOST_FOLDERS = 400


def without_package(failure: BaseException, start: Path | None = None) -> str:
    """Where a failure is a package that is not installed: how to install it, or the folder here that it is in; else ""."""
    name = failure.name if isinstance(failure, ModuleNotFoundError) else None
    if not name:
        return ""
    top = name.partition(".")[0]
    near = _folder_of(top, start or Path.cwd())
    if near is not None:
        return f"; it is a folder of the program: PYTHONPATH={near}"
    known = next((_DISTRIBUTIONS[each] for each in (name, top) if each in _DISTRIBUTIONS), top)
    return f"; it is not installed here: pip install {known}, or as the program's requirements say"


def _folder_of(module: str, start: Path) -> Path | None:
    """The folder at or two levels around a place that holds a module of that name."""
    for place in islice(chain((start, start.parent), start.glob("*"), start.glob("*/*")), _MOST_FOLDERS):
        if place.is_dir() and ((place / module / "__init__.py").is_file() or (place / f"{module}.py").is_file()):
            return place
    return None
