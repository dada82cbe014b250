"""Every argument of the engines' and trainers' own parsers is read, idle, told with its effect, or listed here as unread.

``flags/*.txt``: names by their program, with the release that they were listed from in the first line.
"""

import tomllib
from pathlib import Path

import pytest

from vramcast.reading.serving.bare_flags import _OF_QUESTION
from vramcast.reading.serving.effects import effect_of, leaves_memory
from vramcast.reading.serving.flags import is_idle, plain_name
from vramcast.reading.serving.spelling import ALIASES, SPEED
from vramcast.reading.training import shared
from vramcast.reading.training.formats import rules_of
from vramcast.reading.training.idle_keys import idle_keys
from vramcast.serving.engines import engine

FLAGS = Path(__file__).parent / "flags"
UNREAD = tomllib.loads((FLAGS / "unread.toml").read_text())
SERVING = ("llama_cpp", "lmdeploy", "tgi")
# What the question itself says in its own words.
_OF_ALL = {"model", "max-model-len", "tensor-parallel-size"}
_ASKED = {"llama_cpp": {"model", "hf-repo", *_OF_QUESTION["llama_cpp"]}, "lmdeploy": _OF_ALL, "tgi": _OF_ALL}
_ASKED_BY_ALL = {"dtype", "quantization", "data-parallel-size", "ep-size", "pipeline-parallel-size"}


def _listed(name: str) -> list[str]:
    head, *names = (FLAGS / f"{name}.txt").read_text().splitlines()
    assert head.startswith("# ")
    return names


def _serving(name: str, flag: str) -> bool:
    plain = plain_name(flag if flag.startswith("-") else f"--{flag}", ALIASES.get(name, {}))
    own = {option.name.replace("_", "-") for option in engine(name).options} | _ASKED[name] | _ASKED_BY_ALL
    idle = is_idle(plain) or is_idle(flag) or leaves_memory(name, plain, "1")
    return plain in own or plain in SPEED or idle or effect_of(name, plain) != ""


def _training(name: str, key: str) -> bool:
    forms = ("huggingface",) if name == "trl" else (name, "huggingface")
    quiet = [word for form in forms for word in (*rules_of(form).IDLE, *idle_keys(form))]
    ruled = any(key in rules_of(form).RULES for form in forms) or shared.rule_of(key) is not None
    sections = ("fsdp_config", "activation_checkpointing_kwargs")  # read by the keys inside
    return ruled or key in quiet or key in sections or any(w.endswith("*") and key.startswith(w[:-1]) for w in quiet)


@pytest.mark.parametrize("name", sorted(path.stem for path in FLAGS.glob("*.txt")))
def test_every_argument_is_known_or_listed_as_unread(name: str) -> None:
    known = _serving if name in SERVING else _training
    unknown = {flag for flag in _listed(name) if not known(name, flag)}
    assert unknown == set(UNREAD.get(name, ()))
