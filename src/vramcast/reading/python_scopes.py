"""Where a Python program sets its names: scopes, the branches around each assignment, classes, functions, argparse's options.

What a name holds where it is read is the last assignment before that place in its own scope, else what the scopes around it hold
at their end; an assignment under an ``if`` counts where its test is known to hold.
"""

import ast
from collections.abc import Iterator

import msgspec

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Open(msgspec.Struct, frozen=True):
    """A value that only running the program would tell; ``name``: what it is called there."""

    name: str


class Binding(msgspec.Struct, frozen=True):
    """One assignment: its line, its value, and the tests of the branches that it stands in with whether each must hold."""

    line: int
    value: ast.expr
    tests: tuple[tuple[ast.expr, bool], ...] = ()


class Scopes:
    """The program's tree by scope; its classes and functions by name, its calls by what they start."""

    def __init__(self, tree: ast.Module) -> None:
        self.around: dict[int, ast.AST] = {}  # the function that an expression stands in, by its id; the module for others
        self.bindings: dict[int, dict[str, list[Binding]]] = {}
        self.changes: dict[int, dict[str, list[tuple[ast.AST, tuple[tuple[ast.expr, bool], ...]]]]] = {}
        self.outer: dict[int, ast.AST] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self.module = tree
        self.calls: dict[str, list[ast.Call]] = {}
        self.under: dict[int, tuple[tuple[ast.expr, bool], ...]] = {}  # the tests around a call or an assignment, by its id
        self.sets: dict[str, list[ast.Assign]] = {}  # assignments to attributes of objects: tokenizer.model_max_length = 512
        self._enter(tree, tree, ())
        self._parameters()

    def _enter(self, node: ast.AST, scope: ast.AST, tests: tuple[tuple[ast.expr, bool], ...]) -> None:
        """Note every node of a scope without recursion over statements that Python's own limit would not hold."""
        stack: list[tuple[ast.AST, ast.AST, tuple[tuple[ast.expr, bool], ...]]] = [(node, scope, tests)]
        while stack:
            one, inside, under = stack.pop()
            self.around[id(one)] = inside
            self._note(one, inside, under)
            if isinstance(one, _SCOPES):
                self.outer[id(one)] = inside
                stack += [(child, one, under) for child in ast.iter_child_nodes(one)]
            elif isinstance(one, ast.If | ast.IfExp):
                stack.append((one.test, inside, under))
                body, orelse = (one.body, one.orelse) if isinstance(one, ast.If) else ([one.body], [one.orelse])
                stack += [(child, inside, (*under, (one.test, True))) for child in body]
                stack += [(child, inside, (*under, (one.test, False))) for child in orelse]
            else:
                stack += [(child, inside, under) for child in ast.iter_child_nodes(one)]

    def _note(self, node: ast.AST, scope: ast.AST, tests: tuple[tuple[ast.expr, bool], ...]) -> None:
        if isinstance(node, ast.ClassDef):
            self.classes.setdefault(node.name, node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.functions.setdefault(node.name, node)
        elif isinstance(node, ast.Call | ast.AugAssign):
            self.under[id(node)] = tests
        if (target := _attribute_set(node)) is not None and isinstance(node, ast.Assign):
            self.under[id(node)] = tests
            self.sets.setdefault(ast.unparse(target), []).append(node)
        if isinstance(node, ast.Call) and (name := starts_of(node.func)):
            self.calls.setdefault(name, []).append(node)
        for name, line, value in _assigned(node):
            found = self.bindings.setdefault(id(scope), {}).setdefault(name, [])
            found.append(Binding(line, value, tests))
        for name in _changed(node):
            self.changes.setdefault(id(scope), {}).setdefault(name, []).append((node, tests))

    def _parameters(self) -> None:
        """What a function's parameters hold: what its one call passes, else their defaults."""
        inits = {
            name: one
            for name, node in self.classes.items()
            for one in node.body
            if isinstance(one, ast.FunctionDef) and one.name == "__init__"
        }
        for name, function in (*self.functions.items(), *inits.items()):
            held = self.bindings.setdefault(id(function), {})
            passed = dict(_passed(function, self.calls[name][0])) if len(self.calls.get(name, ())) == 1 else {}
            for parameter, value in {**dict(_defaults(function)), **passed}.items():
                held.setdefault(parameter, []).insert(0, Binding(0, value))

    def places(self, node: ast.AST) -> Iterator[tuple[ast.AST, int]]:
        """The scopes that a name in this node is looked up in, each with the line before which an assignment must stand."""
        scope = self.around.get(id(node), self.module)
        line = getattr(node, "lineno", 0)
        while True:
            yield scope, line
            if scope is self.module:
                return
            scope, line = self.outer.get(id(scope), self.module), 10**9

    def set_before(self, node: ast.Attribute) -> list[ast.Assign]:
        """The assignments to an attribute that may hold where it is read, the last one first; another function's may too."""
        scope = self.around.get(id(node))
        held = self.sets.get(ast.unparse(node), ())
        before = [one for one in held if (one.end_lineno or 0) < node.lineno or self.around.get(id(one)) is not scope]
        return sorted(before, key=lambda one: -one.lineno)


def _attribute_set(node: ast.AST) -> ast.Attribute | None:
    """The attribute of an object by name that a statement sets; what ``self`` keeps is another matter."""
    target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    named = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id != "self"
    return target if named else None  # type: ignore[return-value]


def _assigned(node: ast.AST) -> Iterator[tuple[str, int, ast.expr]]:
    """Names that a statement sets, with the line and the value of each; ``A, B = 1, 2`` by part."""
    targets: list[ast.expr] = []
    value: ast.expr | None = None
    if isinstance(node, ast.Assign):
        targets, value = node.targets, node.value
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
        targets, value = [node.target], node.value
    for target in targets if value is not None else ():
        if isinstance(target, ast.Name):
            yield target.id, target.lineno, value  # type: ignore[misc]
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for part, inner in zip(target.elts, value.elts, strict=True):
                if isinstance(part, ast.Name):
                    yield part.id, part.lineno, inner
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Call):
            for place, part in enumerate(target.elts):  # a, b = function(...)
                if isinstance(part, ast.Name):
                    item = ast.Subscript(value=value, slice=ast.Constant(place), ctx=ast.Load())
                    yield part.id, part.lineno, ast.copy_location(item, value)


def _changed(node: ast.AST) -> Iterator[str]:
    """The name whose mapping a statement changes: ``d["k"] = v``, ``d.update(...)``, ``d.setdefault(...)``."""
    target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
        yield target.value.id
    call = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
    if isinstance(call, ast.Attribute) and call.attr in ("update", "setdefault") and isinstance(call.value, ast.Name):
        yield call.value.id


def _defaults(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, ast.expr]]:
    named = function.args.args[len(function.args.args) - len(function.args.defaults) :]
    yield from ((argument.arg, default) for argument, default in zip(named, function.args.defaults, strict=False))
    for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if default is not None:
            yield argument.arg, default


def _passed(function: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    own = [argument.arg for argument in function.args.args]
    own = own[1:] if own[:1] in (["self"], ["cls"]) else own
    if not any(isinstance(one, ast.Starred) for one in call.args):
        yield from zip(own, call.args, strict=False)
    names = {*own, *(argument.arg for argument in function.args.kwonlyargs)}
    for word in call.keywords:
        if word.arg in names and not (isinstance(word.value, ast.Name) and word.value.id == word.arg):
            yield word.arg, word.value
    if function.args.kwarg is not None:
        more = [word for word in call.keywords if word.arg not in names]
        keys: list[ast.expr | None] = [ast.Constant(word.arg) if word.arg else None for word in more]
        yield function.args.kwarg.arg, ast.Dict(keys=keys, values=[word.value for word in more])


def passed_to(function: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """The parameters that a call gives, with the expressions; those of the same name on both sides too."""
    yield from _passed(function, call)
    names = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
    yield from ((word.arg, word.value) for word in call.keywords if word.arg in names)


def returns_of(
    function: ast.FunctionDef | ast.AsyncFunctionDef,
) -> Iterator[tuple[ast.Return, tuple[tuple[ast.expr, bool], ...] | None]]:
    """A function's own returns in their order, with the tests around each; None where a loop or a ``match`` decides."""
    stack: list[tuple[ast.AST, tuple[tuple[ast.expr, bool], ...] | None]] = [(one, ()) for one in reversed(function.body)]
    while stack:
        one, tests = stack.pop()
        if isinstance(one, ast.Return):
            yield one, tests
        elif isinstance(one, ast.If) and tests is not None:
            stack += [(child, (*tests, (one.test, False))) for child in reversed(one.orelse)]
            stack += [(child, (*tests, (one.test, True))) for child in reversed(one.body)]
        elif isinstance(one, ast.stmt | ast.match_case) and not isinstance(
            one, (*_SCOPES, ast.ClassDef)
        ):  # no except: it runs through
            open_ = isinstance(one, ast.For | ast.AsyncFor | ast.While | ast.match_case)
            stack += [(child, None if open_ else tests) for child in reversed(list(ast.iter_child_nodes(one)))]


def starts_of(function: ast.expr) -> str:
    """The function or class that a call starts: ``f(...)``, ``Deployment.bind(...)``, ``Actor.remote(...)``; "" for others."""
    if isinstance(function, ast.Attribute) and function.attr in ("bind", "remote", "spawn", "local"):
        function = function.value
    return function.id if isinstance(function, ast.Name) else ""


def called(node: ast.Call) -> str:
    """The last part of the name that a call names."""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def field_defaults(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Annotated fields of a class with their defaults: ``x: int = 4``, ``x: int = field(default=4)``, what a factory builds."""
    for one in node.body:
        if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name) or one.value is None:
            continue
        value: ast.expr | None = one.value
        if isinstance(value, ast.Call) and called(value) in ("field", "Field"):
            words = {word.arg: word.value for word in value.keywords}
            factory = words.get("default_factory")
            built = factory.body if isinstance(factory, ast.Lambda) else None
            if isinstance(factory, ast.Name):
                built = ast.copy_location(ast.Call(func=factory, args=[], keywords=[]), factory)
            value = words.get("default") or built or (value.args[0] if value.args and called(value) == "Field" else None)
        if value is not None:
            yield one.target.id, value


def class_values(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Fields with their defaults, and names that a class's body assigns."""
    yield from field_defaults(node)
    for one in node.body:
        if isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name):
            yield one.targets[0].id, one.value


def kept_by_objects(tree: ast.Module) -> dict[str, ast.expr]:
    """What ``self.name`` holds where a program sets it once; None set before it counts as nothing."""
    found: dict[str, ast.expr] = {}
    twice: set[str] = set()
    for node in ast.walk(tree):
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            target = node.target
        if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name) or target.value.id != "self":
            continue
        value: ast.expr = node.value  # type: ignore[attr-defined]
        if isinstance(value, ast.Constant) and value.value is None:
            continue
        if target.attr in found and ast.dump(found[target.attr]) != ast.dump(value):
            twice.add(target.attr)
        found[target.attr] = value
    for node in ast.walk(tree):
        for name, value in class_values(node) if isinstance(node, ast.ClassDef) else ():
            found.setdefault(name, value)
    return {name: value for name, value in found.items() if name not in twice}


def options_of(tree: ast.Module) -> dict[str, ast.expr]:
    """What the command line's options default to, by their python names: argparse, click; and dataclasses' fields."""
    found: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for name, default in field_defaults(node):
                found.setdefault(name, default)
        elif isinstance(node, ast.Call) and called(node) in ("add_argument", "option"):
            given = {word.arg: word.value for word in node.keywords}
            held = given.get("default") or _switch(given.get("action"))
            for name in option_names(node, given.get("dest")):
                if held is not None:
                    found.setdefault(name, held)
        elif isinstance(node, ast.Call) and called(node) == "set_defaults":
            found.update({word.arg: word.value for word in node.keywords if word.arg})
    return found


def option_names(call: ast.Call, dest: ast.expr | None) -> list[str]:
    """The python names of an option: of its long flags, else of its last, and of ``dest``."""
    flags = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    names = [flag for flag in flags if flag.startswith("--")] or flags[-1:]
    names += [dest.value] if isinstance(dest, ast.Constant) and isinstance(dest.value, str) else []
    return [name.lstrip("-").split("/")[0].replace("-", "_") for name in names]


def _switch(action: ast.expr | None) -> ast.expr | None:
    if not isinstance(action, ast.Constant) or action.value not in ("store_true", "store_false"):
        return None
    return ast.copy_location(ast.Constant(action.value == "store_false"), action)
