"""What programs of research repositories ask of the machine that they were written for."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from small_scripts import STEPS, trace_text

from vramcast.tracing.published.picture_sets import picture_sets

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

_ASKS = """
import os, sys, torch, urllib.request
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "site-packages"))
import an_older_library
from an_older_library.part import moved_inside
assert moved_inside() == "from another package"
import torch.utils.model_zoo as model_zoo
from torch.utils.data.dataset import T_co
from vramcast.tracing.execution.stand_ins.older_forms import model_urls
address = model_urls["resnet50"].replace("https://download.pytorch.org", "http://127.0.0.1:9")
torch.nn.Linear(4, 4).load_state_dict(model_zoo.load_url(address))
from timm.models import _factory

def own(pretrained=False, **options):
    assert not options, options
    return "own"

def named(pretrained=False, cache_dir="here", **options):
    return cache_dir

_factory.known.update(own=own, named=named)
assert _factory.create_model("own") == "own" and _factory.create_model("named") is None

best = torch.max(torch.nn.Linear(512, 2048)(torch.randn(1, 512)), 1)[1][0]
index = torch.empty(1, 1).type_as(torch.LongTensor([1])).fill_(best)
assert index.item() == 1
torch.hub.download_url_to_file("http://127.0.0.1:9/a/font.ttf", "font.ttf", progress=False)
assert urllib.request.urlretrieve("http://127.0.0.1:9/weights.pth")[0] == "weights.pth"
torch.nn.Linear(4, 4).load_state_dict(torch.load("weights.pth"))
try:
    torch.hub.download_url_to_file("http://127.0.0.1:9/a/other.ttf", "other.ttf", progress=False)
except OSError:
    pass
else:
    raise AssertionError
assert not os.path.exists("font.ttf")
"""
_FACTORY = """
known = {}
def model_entrypoint(name):
    return known[name]
def create_model(name, **options):
    return model_entrypoint(name)(pretrained=False, pretrained_cfg=None, pretrained_cfg_overlay=None, cache_dir=None, **options)
"""
_LIBRARY = """
try:
    from torch._six import string_classes
except ImportError:
    string_classes = None
from torch._six import inf
assert inf > 1 and string_classes is None
"""


def test_old_libraries_fetched_files_and_registered_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = {
        "an_older_library/__init__.py": _LIBRARY + "from another_package import moved_inside\n",
        "an_older_library/part.py": "",
        "another_package.py": "def moved_inside():\n    return 'from another package'\n",
        "timm/__init__.py": "",
        "timm/models/__init__.py": "",
        "timm/models/_factory.py": _FACTORY,
        "timm/models/_builder.py": "load_pretrained = None",
    }
    for name, text in files.items():
        place = tmp_path / "site-packages" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    result = trace_text(tmp_path, _ASKS + STEPS).result
    assert (result.error, result.steps) == ("", 2)
    told = "\n".join(result.notes)
    assert "http://127.0.0.1:9/a/font.ttf was not fetched: font.ttf is not written" in told
    assert "weights.pth is not here: what is loaded from it keeps the values that it was made with" in told
    assert "torch._six is of an earlier version" in told
    assert "other.ttf" not in told


def test_published_sets_of_pictures_have_their_counts_and_kinds() -> None:
    sets = {name: each for kinds in picture_sets().values() for name, each in kinds.items()}
    assert sets["CelebA"].count("all") == sum(sets["CelebA"].count(split) or 0 for split in ("train", "valid", "test"))
    assert (sets["USPS"].count(True), sets["USPS"].count(False), sets["EuroSAT"].count(None)) == (7_291, 2_007, 27_000)
    assert sets["STL10"].count("a split of one's own") is None
    for each in sets.values():
        assert bool(each.array) == bool(each.labels)
        assert set(each.target) != {""} or not each.by


_PICTURES = """
import torch, torchvision
from torchvision.datasets import STL10, CelebA, OxfordIIITPet, Flowers102, EMNIST, VOCDetection
assert STL10(".", download=True).data.shape == (5_000, 3, 96, 96)
assert EMNIST(".", "letters", download=True).targets.max() == 26
faces = CelebA(".", "valid", target_type=["attr", "identity"], transform=torchvision.transforms.ToTensor())
assert len(faces) == 19_867 and faces[3][0].shape == (3, 218, 178) and faces[3][1][0].shape == (40,)
pet, (kind, mask) = OxfordIIITPet(".", target_types=["category", "segmentation"])[38]
assert kind == 1 and mask.size == pet.size
assert len(Flowers102(".", "test").classes) == 102
assert VOCDetection(".")[0][1]["annotation"]["object"][0]["name"] == "person"
class Digits(torchvision.datasets.MNIST):
    def __init__(self, split):
        self.split = split
        super().__init__(".", split == "train", download=True)
assert len(Digits("train")) == 60_000
try:
    Flowers102(".", "test")
except RuntimeError:
    pass  # the program has something else to do
else:
    raise AssertionError
for kind, options in ((Flowers102, {"split": "other"}), (VOCDetection, {"year": "2007"})):
    try:
        kind(".", **options)
    except (ValueError, RuntimeError):
        continue
    raise AssertionError(kind)
"""


def test_published_sets_of_pictures_are_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("torchvision") is None:
        pytest.skip("needs torchvision")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    result = trace_text(tmp_path, _PICTURES + STEPS).result
    assert (result.error, result.steps) == ("", 2)
    assert "CelebA is not here: 19,867 pictures of 178 x 218 x 3 are made up" in result.notes


def test_a_step_of_one_optimizer_is_not_given_its_number() -> None:
    from vramcast.tracing.execution.stand_ins.older_lightning import _of_one_optimizer

    class Module:
        def training_step(self, batch: int, batch_idx: int, optimizer_idx: int = 0) -> tuple[int, int, int]:
            return batch, batch_idx, optimizer_idx

        def validation_step(self, batch: int, batch_idx: int, optimizer_idx: int) -> None: ...

    module, told = Module(), list[str]()
    before = module.validation_step
    _of_one_optimizer(module, lambda name, _: told.append(name))
    assert module.training_step(3, 4) == (3, 4, 0)
    assert module.validation_step == before
    assert told == ["Module.training_step's optimizer_idx"]
