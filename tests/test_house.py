"""The house rules: dependencies point downwards only, every module says what it is for, nothing heavy is imported early."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "vramcast"
MODULES = sorted(ROOT.rglob("*.py"))

LAYERS = {
    "errors": 0, "children": 0, "language": 0, "units": 1, "quantity": 1, "ledger": 2, "workload": 2,
    "largest": 2, "untrusted": 2, "models": 3, "hardware": 3,
    "serving": 4, "training": 4.2, "speed": 4.5, "tracing": 3.5, "profiling": 4, "measuring": 6,
    "truth": 5, "planning": 7, "reading": 7, "writing": 7.5, "charts": 8.2, "asking": 8,
    "web": 8.5, "mcp": 8.5, "callbacks": 8.5, "cli": 9,
}  # fmt: skip
SIDEWAYS = {("truth", "reading"), ("planning", "truth")}
HEAVY = {
    "torch",
    "transformers",
    "numpy",
    "rich",
    "huggingface_hub",
    "yaml",
    "altair",
    "gguf",
    "pynvml",
    "ray",
    "polars",
    "litestar",
    "jinja2",
    "uvicorn",
    "mcp",
}


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    """The module and every node in it: each file is parsed once for all the rules."""
    return tuple(ast.walk(ast.parse(path.read_text())))


@cache
def _imports(path: Path) -> tuple[tuple[ast.AST, str], ...]:
    found: list[tuple[ast.AST, str]] = []
    for node in _nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.append((node, node.module))
        elif isinstance(node, ast.Import):
            found += [(node, alias.name) for alias in node.names]
    return tuple(found)


def test_dependencies_point_downwards() -> None:
    wrong = [told for path in MODULES for told in _upwards(path)]
    assert not wrong, "\n".join(wrong)


def _upwards(path: Path) -> Iterator[str]:
    """Imports of what is not below the module's package; the top of the house may import anything."""
    package = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for _, module in _imports(path) if package in LAYERS else ():
        parts = module.split(".")
        if parts[0] != "vramcast" or len(parts) < 2 or parts[1] == package or parts[1] not in LAYERS:
            continue
        if LAYERS[parts[1]] >= LAYERS[package] and (package, parts[1]) not in SIDEWAYS:
            yield f"{_name(path)} imports {module}, which is not below it"


def test_every_module_says_what_it_is_for() -> None:
    silent = [_name(path) for path in MODULES if not ast.get_docstring(_nodes(path)[0])]  # type: ignore[arg-type]
    assert not silent, f"no docstring: {', '.join(silent)}"


def test_importing_the_package_stays_light() -> None:
    program = (
        f"import sys, vramcast, vramcast.models.families.llama, vramcast.workload; print(*sorted({HEAVY!r} & set(sys.modules)))"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT.parent)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == ""


PACKAGES = sorted(path for path in ROOT.iterdir() if (path / "__init__.py").exists())
TRAINING = {
    "recipe": 0, "optimizers": 0, "adapters": 0, "shape": 0, "stage_layouts": 1, "methods": 1, "frameworks": 1, "activations": 2,
    "counts": 2,
    "resolve": 3, "states": 3, "towers": 3, "gathers": 4, "loss": 4, "structure": 5, "moment": 6,
    "full_sharding": 7, "layer_events": 7, "timeline": 8, "counters": 9, "replay": 9, "replay_fsdp1": 10,
    "replay_fsdp2": 11, "replay_zero": 10, "replay_zero3": 11, "forecast": 12, "memory": 12,
}  # fmt: skip


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_no_two_parts_of_a_package_need_each_other(package: Path) -> None:
    """Sub-packages, and the modules beside them, are layers too."""
    needs = _needs_of_parts(package)
    while free := {part for part, needed in needs.items() if not needed & set(needs)}:
        needs = {part: needed for part, needed in needs.items() if part not in free}
    assert not needs, f"these import each other in a circle: {', '.join(sorted(needs))}"


def test_the_parts_of_training_stand_in_order() -> None:
    for part, needed in _needs_of_parts(ROOT / "training").items():
        above = {other for other in needed if TRAINING[other] >= TRAINING[part]}
        assert not above, f"training/{part} imports {', '.join(sorted(above))}, which is not below it"


def _needs_of_parts(package: Path) -> dict[str, set[str]]:
    """For each sub-package and module of a package, those of its neighbours that it imports."""
    needs: dict[str, set[str]] = {}
    for path in sorted(package.rglob("*.py")):
        part = path.relative_to(package).parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        begun = [m.split(".") for m in _modules(path) if m.startswith(f"vramcast.{package.name}.")]
        needs.setdefault(part, set()).update(parts[2] for parts in begun if parts[2] != part)
    return {part: needed & set(needs) for part, needed in needs.items()}


def test_no_two_modules_need_each_other() -> None:
    """No circle of files anywhere, imports inside functions counted."""
    files = {_name(path).removesuffix(".py").replace("/", "."): path for path in MODULES if path.name != "__init__.py"}
    needs = {name: {m.removeprefix("vramcast.") for m in _modules(path)} & set(files) for name, path in files.items()}
    while free := {name for name, needed in needs.items() if not needed & set(needs)}:
        needs = {name: needed for name, needed in needs.items() if name not in free}
    assert not needs, f"these import each other in a circle: {', '.join(sorted(needs))}"


def _modules(path: Path) -> Iterator[str]:
    for node, module in _imports(path):
        yield module
        yield from (f"{module}.{alias.name}" for alias in node.names)


# Other programs' own words, which sound like classes: builders and flavours, GGUF architectures, speculative methods.
NAMES_OF_OTHERS = (
    "serving/engines/vllm/options.py",
    "reading/training/torchtune.py",
    "reading/training/torchtitan.py",
    "truth/rows/llama_cpp.py",
)


def _words(node: ast.AST) -> list[str]:
    """The strings of a set, list, tuple or of a dict's keys."""
    held = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
    return [n.value for n in held if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def test_what_hangs_on_a_model_class_stands_in_its_row() -> None:
    """Outside models/ no collection names two classes, and no family is compared with a name: ask models.classes."""
    apart = [p for p in MODULES if _name(p).split("/")[0] != "models" and _name(p) not in NAMES_OF_OTHERS]
    wrong = [told for path in apart for told in _asks_for_classes(path)]
    assert not wrong, "\n".join(wrong)


def _asks_for_classes(path: Path) -> Iterator[str]:
    from vramcast.models.classes import known_classes

    classes = set(known_classes())
    for node in _nodes(path):
        named = set(_words(node)) & classes
        if len(named) > 1:
            yield f"{_name(path)}:{node.lineno} names {', '.join(sorted(named))}: a fact of a class is a column of its row"
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        asks = [s for s in sides if isinstance(s, ast.Attribute) and s.attr in ("family", "text_class")]
        told = {n.value for s in sides if asks for n in ast.walk(s) if isinstance(n, ast.Constant)}
        if asks and told & classes:
            yield f"{_name(path)}:{node.lineno} asks for a family by name"


SCRIPTS = sorted(path for folder in ("tools", "benchmarks", "truth") for path in (ROOT.parents[1] / folder).rglob("*.py"))


@cache
def _defined(module: str) -> set[str] | None:
    """The names that stand at the top of a module of the package; None where it makes names when they are asked for."""
    base = ROOT.parent.joinpath(*module.split("."))
    path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    if not path.exists():
        return set()
    tree, found = _nodes(path)[0], {inner.stem for inner in base.glob("*") if base.is_dir()}
    assert isinstance(tree, ast.Module)
    for node in [inner for outer in tree.body for inner in (*ast.iter_child_nodes(outer), outer)]:
        match node:
            case ast.FunctionDef(name="__getattr__"):
                return None
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {alias.asname or alias.name.partition(".")[0] for alias in names}
            case ast.Tuple(elts=elements):
                found |= {one.id for one in elements if isinstance(one, ast.Name)}
    return found


def test_scripts_import_names_that_are_there() -> None:
    lacking = [
        f"{path.relative_to(ROOT.parents[1])}: {node.module}.{alias.name}"
        for path in SCRIPTS for node in _nodes(path)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vramcast"
        for alias in node.names
        if (defined := _defined(str(node.module))) is not None and alias.name not in defined
    ]  # fmt: skip
    assert not lacking, "\n".join(lacking)
