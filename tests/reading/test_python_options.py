"""What a command gives stands in the place of a program's own defaults."""

import pytest

from vramcast.reading.python_options import with_options


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        ("p.add_argument('--n', default=4, type=int)", {"n": "16"}, "p.add_argument('--n', default=16, type=int)"),
        ("p.add_argument('--n', type=int,)", {"n": "16"}, "p.add_argument('--n', default=16, type=int,)"),
        ("p.add_argument('--n', help=('a '\n 'b'))", {"n": "16"}, "p.add_argument('--n', default=16, help=('a '\n 'b'))"),
        ("p.add_argument('--n', default=4)", {"n": "007"}, "p.add_argument('--n', default='007')"),
        ("p.add_argument('--no-ckpt', dest='ckpt', action='store_false')", {"no_ckpt": True},
         "p.add_argument('--no-ckpt', default=False, dest='ckpt', action='store_false')"),
        ("p.add_argument('--all', action='store_const', const=9, default=1)", {"all": True},
         "p.add_argument('--all', action='store_const', const=9, default=9)"),
        ("p.add_argument('--a')\rp.add_argument('--n', default=4)", {"n": "2"},
         "p.add_argument('--a')\rp.add_argument('--n', default=2)"),
        ("p.add_argument('--on', action='store_true')", {"on": True},
         "p.add_argument('--on', default=True, action='store_true')"),
        ("p.add_argument('--max-len', default=4)", {"max_len": "$L"}, "p.add_argument('--max-len', default=typed_L)"),
        ("p.add_argument('--name', default='a')", {"name": "8"}, "p.add_argument('--name', default='8')"),
        ("p.add_argument('--é', default=4); p.add_argument('--n', default=4)", {"n": "2"},
         "p.add_argument('--é', default=4); p.add_argument('--n', default=2)"),
        ("@dataclass\nclass A:\n    n: int = field(default=4)\n    m: str\n", {"n": "1e-4", "m": "a/b"},
         "@dataclass\nclass A:\n    n: int = 1e-4\n    m: str = 'a/b'\n"),
        ("class A:\n    n: int = 4\n", {"n": "2"}, "class A:\n    n: int = 4\n"),
        ("def train(a, n=4, *, on=False): pass\nfire.Fire(train)", {"n": "2", "on": "true"},
         "def train(a, n=2, *, on=True): pass\nfire.Fire(train)"),
        ("def train(n=4): pass\n", {"n": "2"}, "def train(n=4): pass\n"),
        ("def broken(:", {"n": "2"}, "def broken(:"),
    ],
)  # fmt: skip
def test_defaults_give_way_to_what_was_typed(text: str, given: dict[str, object], expected: str) -> None:
    assert with_options(text, given) == expected
