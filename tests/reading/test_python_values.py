"""What a program's names hold by its tree: scopes, branches, mappings, classes, options and plain functions; nothing is run."""

import ast
from typing import Any

import pytest

from vramcast.reading.python_values import Open, Program, parse_python

TEXT = """
import argparse, json, os, torch
from dataclasses import dataclass, field
NAME = "a"
NAME = "b"
CFG = {"model": "m", "train": {"bs": 4}}
CFG["seq"] = 512
CFG.update(rank=8)
BASE = {**CFG, "x": 1} | {"y": 2}

class Common:
    bs = 4

@dataclass
class Model:
    name: str = "org/m"
    length: int = field(default=2048)

@dataclass
class Conf(Common):
    model: Model = field(default_factory=Model)
    rank: int = 16
    mods: list = field(default_factory=lambda: ["q", "v"])

cfg = Conf(rank=32)
p = argparse.ArgumentParser()
p.add_argument("-r", "--lora-r", type=int, default=64)
p.add_argument("--fp", action="store_true")
args = p.parse_args()

def settings():
    return {"k": 7, "j": cfg.rank}

def train(model_name, bs=1):
    shown = model_name
    if args.fp:
        shown = "other"
    use(shown, bs, NAME)

train("org/passed", bs=3)
if unknown():
    W = 1
else:
    W = 2
V = 3
if unknown():
    V = 4
if args.fp:
    X = 1
else:
    X = 2
A, B = 5, 6
"""


def _held(expression: str) -> Any:
    program = parse_python(f"{TEXT}\nRESULT = {expression}\n", "program")
    return program.value(
        next(n.value for n in program.tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "RESULT")
    )


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("NAME", "b"), ('CFG["train"]["bs"]', 4), ('CFG["seq"]', 512), ('CFG.get("rank", 1)', 8), ('CFG.get("none", 9)', 9),
        ('BASE["seq"] + BASE["y"]', 514), ("cfg.bs", 4), ("cfg.model.name", "org/m"), ("cfg.rank", 32), ("cfg.mods", ["q", "v"]),
        ("Common.bs", 4), ("torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16", "bfloat16"),
        ("args.lora_r", 64),
        ("args.fp", False), ("not args.fp", True), ('settings()["j"]', 32), ("V", 3), ("X", 2), ("A * B", 30),
        ('["a"] + ["b", *["c"]]', list("abc")),
        ('"x/{}".format(NAME) + "%s" % "y" + "-".join(["1", "2"])', "x/by1-2"), ('os.path.join("models", "m")', "models/m"),
        ("json.loads('{\"q\": 5}')[\"q\"]", 5), ('getattr(args, "lora_r", 1)', 64), ('getattr(args, "zz", 9)', 9),
        ("max(1, cfg.rank)", 32),
        ("cfg.model.length // 2", 1024), ('"a b".split()', ["a", "b"]), ('"org/m".split("/")[-1]', "m"),
        ("4 if cfg.rank == 32 else 5", 4),
    ],
)  # fmt: skip
def test_values(expression: str, value: Any) -> None:
    assert _held(expression) == value


@pytest.mark.parametrize(
    "expression", ["W", "unknown()", "nobody", "nobody.x", 'CFG["none"]', "[1][5]", "1 // 0", "2 ** 99", "settings"]
)
def test_what_only_running_would_tell_is_open(expression: str) -> None:
    assert isinstance(_held(expression), Open)


def test_a_parameter_holds_what_the_one_call_passes() -> None:
    program = parse_python(TEXT, "program")
    (call,) = program.calls("use")
    assert [program.value(argument) for argument in call.args] == ["org/passed", 3, "b"]


def test_calls_under_a_test_that_fails_do_not_run() -> None:
    program = parse_python("if False:\n    f(1)\nelse:\n    f(2)\nif unknown():\n    f(3)", "program")
    assert [program.runs(call) for call in program.calls("f")] == [False, True, None]


@pytest.mark.parametrize(
    "text", ["x = x\n", "a = b\nb = a\n", "def f():\n    return f()\na = f()\n", "d = {}\nd['k'] = d\nd.update(d)\n"]
)
def test_programs_that_name_themselves_end(text: str) -> None:
    program: Program = parse_python(text, "program")
    for value in program.names.values():
        program.value(value)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("{k: v for k, v in {'a': 1, 'b': 2}.items() if k in ('a', 'c')}", {"a": 1}),
        ("{k: v for k, v in {'a': 1, 'b': 2}.items() if k not in ['a']}", {"b": 2}),
        ("{k: v for k, v in {'a': None, 'b': 0}.items() if v is not None}", {"b": 0}),
        ("{k: v for k, v in {'a': None, 'b': 0, 'c': 3}.items() if v}", {"c": 3}),
        ("[x for x in ['b', '', 'a'] if x]", ["b", "a"]),
        ("sorted(['b', 'a'])", ["a", "b"]),
    ],
)
def test_filters_are_applied(expression: str, value: object) -> None:
    assert _held(expression) == value


@pytest.mark.parametrize("expression", ["[x for x in ['a', 'bc'] if len(x) > 1]", "sorted(['b', 'ac'], key=len)"])
def test_a_filter_that_is_not_worked_out_leaves_the_value_open(expression: str) -> None:
    assert isinstance(_held(expression), Open)


_CHOICES = """
def batch(big):
    if big:
        return 16
    return 2

def rank(name):
    if "7B" in name:
        return 32
    elif "70B" in name:
        return 8, 16
    else:
        return 64

def lengths(long):
    if not long:
        return None
    return 4096

def seen(names):
    for one in names:
        return one
    return 1

def ends(big):
    if big:
        return 3

def tries():
    try:
        return load(4)
    except ImportError:
        return 5

def load(size):
    match size:
        case 8:
            return 9
        case _:
            return size
"""


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("batch(True)", 16), ("batch(False)", 2), ('rank("org/M-7B")', 32), ('rank("org/M-70B")', [8, 16]), ('rank("x")', 64),
        ("lengths(False)", None), ("lengths(True)", 4096), ("ends(True)", 3), ("ends(False)", None),
        ("batch(unknown())", Open), ("rank(unknown())", Open), ("seen([4])", Open), ("tries()", Open),
    ],
)  # fmt: skip
def test_a_function_returns_what_its_tests_say(expression: str, value: object) -> None:
    program = parse_python(f"{_CHOICES}\nheld = {expression}\n", "program")
    held = program.value(program.names["held"])
    assert isinstance(held, Open) if value is Open else held == value


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("args.n = 2\n", 2),
        ("if args.debug:\n    args.n = 1\n", 8),  # a switch that is off
        ("args.n = args.n // 4\n", 2),
        ("if unknown():\n    args.n = 1\n", Open),
        ("args.n = 3\nargs.n = 5\n", 5),
    ],
)
def test_an_attribute_holds_what_reached_assignments_say(before: str, expected: object) -> None:
    text = (
        "p.add_argument('--n', default=8)\np.add_argument('--debug', action='store_true')\nargs = p.parse_args()\n"
        f"{before}f(n=args.n)\nargs.n = 64\n"
    )
    program = parse_python(text, "a program")
    value = program.keywords(next(program.calls("f")))["n"]
    assert isinstance(value, Open) if expected is Open else value == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("torch.backends.mps.is_available()", False),
        ("torch.cuda.is_available()", True),
        ("torch.cuda.is_bf16_supported(including_emulation=True)", True),
        ("torch.cuda.is_bf16_supported(False)", False),
    ],
)
def test_a_card_before_ampere_is_asked(call: str, *, expected: bool) -> None:
    program = parse_python(f"f(n={call})", "a program")
    program.capability = (7, 5)
    assert program.keywords(next(program.calls("f")))["n"] is expected
