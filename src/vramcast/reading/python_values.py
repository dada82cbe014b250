"""Values in a Python program by its syntax tree: constants, names assigned once, defaults of its arguments. Nothing is executed.

Used for ``LLM(...)`` calls and for TrainingArguments in a script. What the tree does not tell is ``Open``, with its name.
"""

import ast
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from vramcast.errors import QuestionError

_MOST_NODES = 200_000
_DEEPEST = 12
_LARGEST_POWER, _LARGEST_BASE = 16, 10**6  # what a length or a batch is worked out with
_WRAPS = ("HuggingFaceModel", "Path")  # calls that stand for their first argument
_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b if 0 <= b <= _LARGEST_POWER and abs(a) <= _LARGEST_BASE else float("inf"),
}


class Open(msgspec.Struct, frozen=True):
    """A value that only running the program would tell; ``name``: what it is called there."""

    name: str


class Program:
    """A parsed program with what its names stand for: assignments of the module and of functions, argparse's defaults."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.names: dict[str, ast.expr] = {}
        self.arguments: dict[str, ast.expr] = {}
        self.environment: Mapping[str, str] = {}  # what os.environ is known to hold
        self.attributes = _kept_by_objects(tree)
        for node in ast.walk(tree):
            self._note(node)
        for name, value in _passed_once(tree):
            self.names.setdefault(name, value)
        for name in _decided_by_branches(tree):
            self.names[name] = ast.Name(id=f"{name} ")  # either value: open

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, ast.ClassDef):
            self._fields(node)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            self.names.setdefault(node.targets[0].id, node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            self.names.setdefault(node.target.id, node.value)
        elif isinstance(node, ast.Call) and called(node) == "add_argument":
            default = next((word.value for word in node.keywords if word.arg == "default"), None)
            flags = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            if default is not None and flags:
                self.arguments.setdefault(flags[-1].lstrip("-").replace("-", "_"), default)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            named = node.args.args[len(node.args.args) - len(node.args.defaults) :]
            for argument, default in zip(named, node.args.defaults, strict=False):
                self.names.setdefault(argument.arg, default)

    def _fields(self, node: ast.ClassDef) -> None:
        """Defaults of a dataclass's fields, which ``args.name`` reads where no flag says otherwise (HfArgumentParser)."""
        for name, default in field_defaults(node):
            self.arguments.setdefault(name, default)

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """The calls of these functions or classes, by the last part of their name, in the program's order."""
        found = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and called(node) in names]
        yield from sorted(found, key=lambda node: (node.lineno, node.col_offset))

    def keywords(self, call: ast.Call) -> dict[str, Any]:
        """A call's keyword arguments by name; ``**{...}`` and ``**dict(...)`` are opened where the tree tells them."""
        found: dict[str, Any] = {}
        for word in call.keywords:
            value = self.value(word.value)
            if word.arg is not None:
                found[word.arg] = value
            elif isinstance(value, dict):
                found |= {str(name): inner for name, inner in value.items()}
        return found

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """The value of an expression, or ``Open``."""
        if depth > _DEEPEST:
            return Open("...")
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return [self.value(one, depth + 1) for one in node.elts]
        if isinstance(node, ast.Dict):
            return {
                self.value(k, depth + 1): self.value(v, depth + 1)
                for k, v in zip(node.keys, node.values, strict=True)
                if isinstance(k, ast.Constant)
            }
        return self._looked_up(node, depth)

    def _looked_up(self, node: ast.expr, depth: int) -> Any:
        if isinstance(node, ast.JoinedStr):
            return self._joined(node, depth)
        if isinstance(node, ast.Name):
            held = self.names.get(node.id)
            return self.value(held, depth + 1) if held is not None else Open(node.id)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, depth)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return Open(str(node.slice.value))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.value(node.operand, depth + 1)
            return -inner if isinstance(inner, int | float) else Open("...")
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
            return self._worked_out(node, depth)
        if isinstance(node, ast.Call):
            return self._called(node, depth)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):  # input("Epochs [3]: ") or "3"
            told = [value for one in node.values if not isinstance(value := self.value(one, depth + 1), Open)]
            return next((value for value in told if value), told[-1] if told else Open(ast.unparse(node)[:40]))
        return Open(ast.unparse(node)[:40])

    def _joined(self, node: ast.JoinedStr, depth: int) -> Any:
        """An f-string whose parts are all told."""
        parts = [self.value(one.value if isinstance(one, ast.FormattedValue) else one, depth + 1) for one in node.values]
        plain = all(isinstance(part, str | int | float) for part in parts) and sum(len(str(part)) for part in parts) < 400
        return "".join(map(str, parts)) if plain else Open(ast.unparse(node)[:40])

    def _attribute(self, node: ast.Attribute, depth: int) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id in ("torch", "jnp"):
            return node.attr
        of_object = isinstance(node.value, ast.Name) and node.value.id == "self"
        held = self.attributes.get(node.attr) if of_object else self.arguments.get(node.attr)
        return self.value(held, depth + 1) if held is not None else Open(node.attr)

    def _worked_out(self, node: ast.BinOp, depth: int) -> Any:
        left, right = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
        if isinstance(node.op, ast.Div) and isinstance(right, str) and isinstance(left, str | Open):  # a path, below a root
            return f"{left}/{right}" if isinstance(left, str) else right
        if isinstance(node.op, ast.Add) and isinstance(left, str) and isinstance(right, str) and len(left) + len(right) < 400:
            return left + right
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if not numbers or abs(left) > 1e12 or abs(right) > 1e12 or (isinstance(node.op, ast.FloorDiv | ast.Div) and not right):
            return Open(ast.unparse(node)[:40])
        found = _OPERATIONS[type(node.op)](left, right)
        return Open(ast.unparse(node)[:40]) if found == float("inf") else found

    def _called(self, node: ast.Call, depth: int) -> Any:
        """``dict(a=1)``, ``os.environ.get(NAME, default)``, ``int("8")``; other calls are open."""
        name = called(node)
        if name == "dict" and not node.args:
            return self.keywords(node)
        asked = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        if name in ("get", "getenv") and str(asked) in self.environment:
            return self.environment[str(asked)]
        if name == "dumps" and len(node.args) == 1:
            return _as_json(self.value(node.args[0], depth + 1))
        if name in _WRAPS and node.args:
            return self.value(node.args[0], depth + 1)
        if name in ("lower", "strip", "rstrip") and isinstance(node.func, ast.Attribute) and not node.args:
            return self.value(node.func.value, depth + 1)
        if name in ("get", "getenv") and len(node.args) == 2:
            return self.value(node.args[1], depth + 1)
        if name in ("int", "float", "str") and len(node.args) == 1:
            inner = self.value(node.args[0], depth + 1)
            return inner if isinstance(inner, int | float) or (isinstance(inner, str) and len(inner) < 40) else Open(name)
        if name in ("get", "getenv") and node.args and isinstance(node.args[0], ast.Constant):
            return Open(str(node.args[0].value))
        return Open(name or "...")


def _as_json(value: Any) -> Any:
    """A value that the tree tells whole as JSON; ``Open`` where a part is open."""
    import json

    try:
        return json.dumps(value)
    except TypeError:
        return Open("dumps")


def field_defaults(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Annotated fields of a class with their defaults: ``x: int = 4`` and ``x: int = field(default=4)``."""
    for one in node.body:
        if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name) or one.value is None:
            continue
        value: ast.expr | None = one.value
        if isinstance(value, ast.Call) and called(value) in ("field", "Field"):
            value = next((word.value for word in value.keywords if word.arg == "default"), None)
        if value is not None:
            yield one.target.id, value


def _kept_by_objects(tree: ast.Module) -> dict[str, ast.expr]:
    """What ``self.name`` holds where a program sets it once; None set before it counts as nothing."""
    found: dict[str, ast.expr] = {}
    twice: set[str] = set()
    for node in ast.walk(tree):
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name) or target.value.id != "self":
            continue
        value = node.value  # type: ignore[attr-defined]
        if isinstance(value, ast.Constant) and value.value is None:
            continue
        if target.attr in found and ast.dump(found[target.attr]) != ast.dump(value):
            twice.add(target.attr)
        found[target.attr] = value
    for node in ast.walk(tree):
        for one in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name):
                found.setdefault(one.targets[0].id, one.value)
    return {name: value for name, value in found.items() if name not in twice}


def _passed_once(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Parameters without a default whose function the program calls in one place, with what it passes there by name."""
    calls: dict[str, list[ast.Call]] = {}
    functions: dict[str, ast.FunctionDef] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := _starts_of(node.func)):
            calls.setdefault(name, []).append(node)
        elif isinstance(node, ast.FunctionDef):
            functions.setdefault(node.name, node)
        elif isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, ast.FunctionDef) and one.name == "__init__":
                    functions.setdefault(node.name, one)
    for name, function in functions.items():
        if len(calls.get(name, ())) != 1:
            continue
        own = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
        for word in calls[name][0].keywords:
            if word.arg in own and not (isinstance(word.value, ast.Name) and word.value.id == word.arg):
                yield word.arg, word.value


def _starts_of(function: ast.expr) -> str:
    """The function or class that a call starts: ``f(...)``, ``Deployment.bind(...)``, ``Actor.remote(...)``; "" for others."""
    if isinstance(function, ast.Attribute) and function.attr in ("bind", "remote"):
        function = function.value
    return function.id if isinstance(function, ast.Name) else ""


def _decided_by_branches(tree: ast.Module) -> set[str]:
    """Names that an ``if`` and its ``else`` set to different values: which one, only running the program tells."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and node.orelse:
            one, other = _set_in(node.body), _set_in(node.orelse)
            found |= {name for name in one.keys() & other.keys() if one[name] != other[name]}
    return found


def _set_in(body: list[ast.stmt]) -> dict[str, str]:
    plain = (node for node in body if isinstance(node, ast.Assign) and len(node.targets) == 1)
    return {
        node.targets[0].id: ast.dump(node.value)
        for node in plain
        if isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Constant)
    }


def called(node: ast.Call) -> str:
    """The last part of the name that a call names."""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def parse_python(text: str, what: str) -> Program:
    """The program's tree. Raises QuestionError that names ``what`` for what is no Python or too large."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise QuestionError(f"{what} is not Python: {str(error)[:80]}") from None
    if sum(1 for _ in ast.walk(tree)) > _MOST_NODES:
        raise QuestionError(f"{what} is larger than a program that is read: more than {_MOST_NODES:,} parts")
    return Program(tree)
