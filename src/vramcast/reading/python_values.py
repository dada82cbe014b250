"""Values in a Python program by its syntax tree: constants, names, dictionaries, options of its own. Nothing is executed.

Used for ``LLM(...)`` calls and for TrainingArguments in a script. What the tree does not tell is ``Open``, with its name.
"""

import ast
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vramcast.errors import QuestionError
from vramcast.reading.python_comprehensions import comprehended
from vramcast.reading.python_imports import Imports, TextOf, imports_module, imports_of
from vramcast.reading.python_methods import in_order, method_value
from vramcast.reading.python_operators import COMPARES, OF_CARD, on_card, worked_out
from vramcast.reading.python_scopes import (
    Binding,
    Open,
    Scopes,
    called,
    class_values,
    field_defaults,
    kept_by_objects,
    options_of,
    passed_to,
    returns_of,
)

__all__ = ["Open", "Program", "called", "field_defaults", "parse_python"]

_MOST_NODES, _DEEPEST, _MOST_VALUES, _MOST_OF_ONE = 200_000, 32, 400_000, 20_000
_WRAPS = ("HuggingFaceModel", "Path", "PurePath", "deepcopy", "copy", "OmegaConf", "EasyDict", "Option", "Argument")
_SPACES = ("Namespace", "SimpleNamespace", "EasyDict", "AttrDict", "DotDict", "Munch", "ConfigDict", "Box", "OrderedDict", "dict")


class Program:
    """A parsed program with what its names stand for: assignments of the module and of functions, argparse's defaults."""

    def __init__(self, tree: ast.Module, imports: Imports | None = None) -> None:
        self.tree = tree
        self.imports = imports or Imports()  # settings that other files of the folder hold
        self.scopes = Scopes(tree)
        self.arguments = options_of(tree)
        self.environment: Mapping[str, str] = {}  # what os.environ is known to hold
        self.capability: tuple[int, int] | None = None  # of the card that is asked; None: one of today
        self.build_arguments: Mapping[str, Any] = {}  # what BentoML's build gives the program's arguments
        self.attributes = kept_by_objects(tree)
        self.names: dict[str, ast.expr] = {}
        for held in self.scopes.bindings.values():
            for name, bindings in held.items():
                self.names.setdefault(name, bindings[0].value)
        self.frames: list[tuple[ast.AST, dict[str, Any]]] = []  # the arguments of the calls that are being worked out
        self.elements: list[tuple[str, Any]] = []  # the elements that comprehensions are at
        self._steps = self._nested = self._last = 0

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """The calls of these functions or classes, by the last part of their name, in the program's order."""
        found = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and called(node) in names]
        yield from sorted(found, key=lambda node: (node.lineno, node.col_offset))

    def runs(self, node: ast.AST) -> bool | None:
        """Whether a call or an addition is reached, by the tests around it; None where one is open."""
        return self._reached(self.scopes.under.get(id(node), ()))

    def _reached(self, tests: Iterable[tuple[ast.expr, bool]] | None, depth: int = -1) -> bool | None:
        truths = [(self.holds(test, depth + 1), must) for test, must in tests] if tests is not None else [(None, True)]
        if any(truth is not None and truth is not must for truth, must in truths):
            return False
        return None if any(truth is None for truth, _ in truths) else True

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
        if isinstance(node, ast.Constant):
            return node.value
        if not self._nested:  # one expression that runs in circles leaves the others theirs
            self._last = min(self._steps + _MOST_OF_ONE, _MOST_VALUES)
        self._steps += 1
        if depth > _DEEPEST or self._steps > self._last or self._nested > _DEEPEST:
            return Open("...")
        self._nested += 1
        try:
            return self._told(node, depth)
        finally:
            self._nested -= 1

    def _told(self, node: ast.expr, depth: int) -> Any:
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return self._elements(node.elts, depth)
        if isinstance(node, ast.Dict):
            return self._mapping(node, depth)
        return self._looked_up(node, depth)

    def holds(self, test: ast.expr, depth: int = 0) -> bool | None:
        """Whether a test holds, None where the tree does not tell; a test of the machine counts as passed."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.holds(test.operand, depth + 1)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            parts = [self.holds(one, depth + 1) for one in test.values]
            decides = isinstance(test.op, ast.Or)
            return decides if decides in parts else None if None in parts else not decides
        if isinstance(test, ast.Compare):
            return self._compared(test, depth)
        if isinstance(test, ast.Call) and called(test) == "exists":  # of a file on the machine that it runs on
            return True
        value = self.value(test, depth + 1)
        return None if isinstance(value, Open) else bool(value)

    def _compared(self, test: ast.Compare, depth: int) -> bool | None:
        if isinstance(test.left, ast.Name) and test.left.id == "__name__":
            return True
        left, right = self.value(test.left, depth + 1), self.value(test.comparators[0], depth + 1)
        how = COMPARES.get(type(test.ops[0]))
        if len(test.ops) > 1 or isinstance(left, Open) or isinstance(right, Open) or how is None:
            return None
        return how(left, right)

    def _elements(self, nodes: list[ast.expr], depth: int) -> list[Any]:
        found: list[Any] = []
        for one in nodes:
            value = self.value(one.value if isinstance(one, ast.Starred) else one, depth + 1)
            found += value if isinstance(one, ast.Starred) and isinstance(value, list) else [value]
        return found

    def _mapping(self, node: ast.Dict, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key, inner in zip(node.keys, node.values, strict=True):
            value = self.value(inner, depth + 1)
            if key is None:  # {**base, ...}
                found |= value if isinstance(value, dict) else {}
                continue
            name = key.value if isinstance(key, ast.Constant) else self.value(key, depth + 1)
            if isinstance(name, str | int | float | bool):
                found[name] = value
        return found

    def _looked_up(self, node: ast.expr, depth: int) -> Any:
        if isinstance(node, ast.JoinedStr):
            return self._joined(node, depth)
        if isinstance(node, ast.Name):
            return self._name(node, depth)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, depth)
        if isinstance(node, ast.Subscript):
            return self._item(node, depth)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.value(node.operand, depth + 1)
            return -inner if isinstance(inner, int | float) else Open("...")
        if isinstance(node, ast.BinOp):
            return self._worked_out(node, depth)
        if isinstance(node, ast.Call):
            return self._called(node, depth)
        if isinstance(node, ast.IfExp):
            truth = self.holds(node.test, depth + 1)
            return Open(ast.unparse(node)[:40]) if truth is None else self.value(node.body if truth else node.orelse, depth + 1)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):  # input("Epochs [3]: ") or "3"
            told = [value for one in node.values if not isinstance(value := self.value(one, depth + 1), Open)]
            known = len(told) == len(node.values)  # an open part may be what counts, unless a later one is sure to
            return next((value for value in told if value), told[-1] if known else Open(ast.unparse(node)[:40]))
        if isinstance(node, ast.Compare | ast.UnaryOp | ast.BoolOp):
            truth = self.holds(node, depth + 1)
            return Open(ast.unparse(node)[:40]) if truth is None else truth
        if isinstance(node, ast.ListComp | ast.DictComp | ast.GeneratorExp) and len(node.generators) == 1:
            found = comprehended(
                node, self.elements, lambda one: self.value(one, depth + 1), lambda test: self.holds(test, depth + 1)
            )
            return Open(ast.unparse(node)[:40]) if found is None else found
        return Open(ast.unparse(node)[:40])

    def _name(self, node: ast.Name, depth: int) -> Any:
        """What a name holds here: the last assignment before it whose branch runs, in its scope or one around it."""
        if own := [element for name, element in self.elements if name == node.id]:
            return own[-1]
        for scope, line in self.scopes.places(node):
            bindings = self.scopes.bindings.get(id(scope), {}).get(node.id)
            given: dict[str, Any] = next((held for function, held in reversed(self.frames) if function is scope), {})
            if node.id in given and not any(0 < one.line < line for one in bindings or ()):
                return given[node.id]
            if not bindings:
                continue
            found = self._binding(bindings, line, depth)
            if found is None:
                return Open(node.id)
            value, part = self.value(found.value, depth + 1), found.value
            if isinstance(value, Open) and isinstance(part, ast.Subscript) and isinstance(part.value, ast.Call):
                return Open(node.id)  # a, b = function(...)
            return self._changed(node, scope, found, value, depth) if isinstance(value, dict) else value
        return self._imported(node.id, depth)

    def _imported(self, name: str, depth: int) -> Any:
        """What a name holds that another file of the folder sets."""
        other, theirs = self.imports.of_name(name)
        held = other.names.get(theirs) if isinstance(other, Program) else None
        return other.value(held, depth + 1) if isinstance(other, Program) and held is not None else Open(name)

    def _binding(self, bindings: list[Binding], line: int, depth: int) -> Binding | None:
        """The assignment that counts before a line; None where an open test decides between several."""
        before = sorted((one for one in bindings if one.line < line), key=lambda one: one.line) or bindings[:1]
        undecided: list[Binding] = []
        for one in reversed(before):
            if (reached := self._reached(one.tests, depth)) is False:
                continue
            if reached:
                return one  # what an open test may have set instead is passed over: the program's own default stands
            undecided.append(one)
        values = {ast.dump(one.value) for one in undecided}
        both = any(not must for one in undecided for _, must in one.tests)
        return undecided[-1] if undecided and (len(values) == 1 or not both) else None

    def _changed(self, node: ast.Name, scope: ast.AST, bound: Binding, value: dict[Any, Any], depth: int) -> dict[Any, Any]:
        """A mapping with what the program puts into it between its assignment and here."""
        found = dict(value)
        last = node.lineno if self.scopes.around.get(id(node), self.scopes.module) is scope else 10**9
        for change, tests in self.scopes.changes.get(id(scope), {}).get(node.id, ()):
            line = getattr(change, "lineno", 0)
            if bound.line < line < last and (reached := self._reached(tests, depth)) is not False:
                self._change(found, change, depth, sure=reached is True)
        return found

    def _change(self, found: dict[Any, Any], change: ast.AST, depth: int, *, sure: bool) -> None:
        """Make a change; one under an open test leaves a value that stands as it is, and a new one open."""
        if isinstance(change, ast.Assign) and isinstance(change.targets[0], ast.Subscript):
            key = self.value(change.targets[0].slice, depth + 1)
            if isinstance(key, str | int) and (sure or key not in found):
                found[key] = self.value(change.value, depth + 1) if sure else Open(str(key))
        elif sure and isinstance(change, ast.Expr) and isinstance(change.value, ast.Call):
            given = self.value(change.value.args[0], depth + 1) if len(change.value.args) == 1 else {}
            found |= {**(given if isinstance(given, dict) else {}), **self.keywords(change.value)}

    def _item(self, node: ast.Subscript, depth: int) -> Any:
        """``x["key"]``, ``x[0]`` and ``os.environ["NAME"]``."""
        key = self.value(node.slice, depth + 1)
        if isinstance(node.value, ast.Attribute) and node.value.attr == "environ":
            return self.environment.get(str(key), Open(str(key)))
        held = self.value(node.value, depth + 1)
        if isinstance(held, dict) and isinstance(key, str | int) and key in held:
            return held[key]
        if isinstance(held, list | str) and isinstance(key, int) and -len(held) <= key < len(held):
            return held[key]
        return Open(str(key) if isinstance(key, str | int) else ast.unparse(node)[:40])

    def _joined(self, node: ast.JoinedStr, depth: int) -> Any:
        """An f-string whose parts are all told."""
        parts = [self.value(one.value if isinstance(one, ast.FormattedValue) else one, depth + 1) for one in node.values]
        plain = all(isinstance(part, str | int | float) for part in parts) and sum(len(str(part)) for part in parts) < 400
        return "".join(map(str, parts)) if plain else Open(ast.unparse(node)[:40])

    def _attribute(self, node: ast.Attribute, depth: int) -> Any:
        """``config.model.name`` of a mapping, a class or an object of one; ``args.name`` of the program's options."""
        base = node.value
        if isinstance(base, ast.Name):
            if base.id in ("torch", "jnp", "TaskType"):
                return node.attr
            if base.id == "self":
                held = self.attributes.get(node.attr)
                return self.value(held, depth + 1) if held is not None else Open(node.attr)
            if base.id in self.scopes.classes:
                return self.built(base.id, depth).get(node.attr, Open(node.attr))
            if isinstance(other := self.imports.module(base.id), Program) and node.attr in other.names:
                return other.value(other.names[node.attr], depth + 1)
            other, theirs = self.imports.of_name(base.id)  # a class of another file, or a mapping
            if isinstance(other, Program) and theirs in other.scopes.classes:
                return other.built(theirs, depth).get(node.attr, Open(node.attr))
        whole = self.value(base, depth + 1) if isinstance(base, ast.Name | ast.Attribute | ast.Subscript | ast.Call) else None
        if isinstance(whole, dict) and node.attr in whole:
            return whole[node.attr]
        made = self._given_to(base, node.attr, depth) if isinstance(base, ast.Name) else None
        for one in self.scopes.set_before(node):
            if (reached := self._reached(self.scopes.under[id(one)], depth)) is not False:
                return self.value(one.value, depth + 1) if reached else Open(node.attr)
        return self.value(held, depth + 1) if (held := made or self.arguments.get(node.attr)) is not None else Open(node.attr)

    def bound(self, node: ast.Name, depth: int = 0) -> ast.expr | None:
        """The expression that the assignment which counts for a name here gives it; None where none or several may."""
        for scope, line in self.scopes.places(node):
            if bindings := self.scopes.bindings.get(id(scope), {}).get(node.id):
                return found.value if (found := self._binding(bindings, line, depth)) else None
        return None

    def _given_to(self, node: ast.Name, keyword: str, depth: int) -> ast.expr | None:
        """The keyword that an object of a library's class was made with: ``ModelConfig(model_name_or_path=...)``."""
        made = self.bound(node, depth)
        words = made.keywords if isinstance(made, ast.Call) and called(made)[:1].isupper() else []
        return next((word.value for word in words if word.arg == keyword), None)

    def built(self, name: str, depth: int = 0, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """An object of a class of the program: its fields' defaults, those of its bases, and what its call gives."""
        node = self.scopes.classes[name]
        found: dict[str, Any] = {}
        if depth > _DEEPEST:
            return found
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id in self.scopes.classes and base.id != name:
                found |= self.built(base.id, depth + 6)
        found |= {field: self.value(value, depth + 1) for field, value in class_values(node)}
        return found | dict(given or {})

    def _worked_out(self, node: ast.BinOp, depth: int) -> Any:
        left, right = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
        if isinstance(node.op, ast.Div) and isinstance(right, str) and isinstance(left, str | Open):  # a path, below a root
            return f"{left}/{right}" if isinstance(left, str) else right
        if isinstance(node.op, ast.Mod) and isinstance(left, str):
            return method_value("%", left, [right], {}) or Open(ast.unparse(node)[:40])
        found = worked_out(node.op, left, right)
        return Open(ast.unparse(node)[:40]) if found is None else found

    def _called(self, node: ast.Call, depth: int) -> Any:
        """Calls whose value the tree tells: of mappings, environment and text, of the program's classes and plain functions."""
        name = called(node)
        asked = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        if name in ("get", "getenv") and str(asked) in self.environment:
            return self.environment[str(asked)]
        if name in _SPACES and len(node.args) < 2:
            base = self.value(node.args[0], depth + 1) if node.args else {}
            return {**base, **self.keywords(node)} if isinstance(base, dict) else Open(ast.unparse(node)[:40])
        first = node.args[0] if node.args else None
        if name == "use_arguments" and isinstance(first, ast.Name) and first.id in self.scopes.classes:
            return {**self.built(first.id, depth + 1), **self.build_arguments}  # BentoML's, of the package's own file
        if isinstance(node.func, ast.Name) and name in self.scopes.classes:
            return self.built(name, depth + 1, self.keywords(node))
        other, theirs = self.imports.of_name(name) if isinstance(node.func, ast.Name) else (None, "")
        if isinstance(other, Program) and theirs in other.scopes.classes:
            return other.built(theirs, depth + 1, self.keywords(node))
        if name in (*_WRAPS, "create") and node.args:
            return self.value(node.args[0], depth + 1)
        if isinstance(node.func, ast.Name) and name in self.scopes.functions:
            return self._returned(name, node, depth)
        if name in OF_CARD:
            return on_card(node, name, self.capability, unsloth=imports_module(self.tree, "unsloth"))
        return self._worked(node, name, asked, depth)

    def _worked(self, node: ast.Call, name: str, asked: Any, depth: int) -> Any:
        """Calls of the language and of its library whose value follows from their arguments."""
        arguments = [self.value(one, depth + 1) for one in node.args[:8]]
        if name == "getattr" and len(node.args) > 1 and isinstance(arguments[1], str) and isinstance(node.args[0], ast.Name):
            held = self._attribute(ast.copy_location(ast.Attribute(value=node.args[0], attr=arguments[1]), node), depth)
            return arguments[2] if isinstance(held, Open) and len(arguments) > 2 else held
        if name == "join" and any(isinstance(one, Open) for one in arguments) and isinstance(arguments[-1], str):
            return arguments[-1]  # a path below a root that is open
        if name in ("list", "tuple", "sorted") and len(arguments) == 1 and isinstance(arguments[0], list) and not node.keywords:
            return in_order(arguments[0]) if name == "sorted" else arguments[0]
        base = self.value(node.func.value, depth + 1) if isinstance(node.func, ast.Attribute) else None
        found = method_value(name, base, arguments, self.keywords(node) if name == "format" else {})
        if found is not None and not isinstance(found, Open):
            return found
        if name in ("get", "getenv", "pop") and len(node.args) == 2 and not isinstance(base, dict):
            return arguments[1]
        return Open(str(asked) if name in ("get", "getenv") and asked is not None else name or "...")

    def _returned(self, name: str, call: ast.Call, depth: int) -> Any:
        """What a function of the program returns for a call: of its first return whose tests hold; open where they differ."""
        function = self.scopes.functions[name]
        if depth + 4 > _DEEPEST or not (own := list(returns_of(function))):
            return Open(name)
        values: list[Any] = []
        self.frames.append((function, {key: self.value(one, depth + 4) for key, one in passed_to(function, call)}))
        around, self.elements = self.elements, []  # names of loops around the call are not the function's
        try:
            for one, tests in own:
                if (reached := self._reached(tests, depth + 3)) is False:
                    continue
                values.append(None if one.value is None else self.value(one.value, depth + 4))
                if reached:
                    break
            else:
                values.append(None)  # the end of its body
        finally:
            self.frames.pop()
            self.elements = around
        return values[0] if all(value == values[0] for value in values[1:]) else Open(name)


def parse_python(text: str, what: str, text_of: TextOf | None = None, *, depth: int = 0) -> Program:
    """The program's tree; ``text_of``: the text of a file beside it, for settings that it imports, or None.

    Raises QuestionError that names ``what`` for what is no Python or too large.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise QuestionError(f"{what} is not Python: {str(error)[:80]}") from None
    if sum(1 for _ in ast.walk(tree)) > _MOST_NODES:
        raise QuestionError(f"{what} is larger than a program that is read: more than {_MOST_NODES:,} parts")
    return Program(
        tree, imports_of(tree, text_of, lambda other, name: parse_python(other, name, text_of, depth=depth + 1), depth)
    )
