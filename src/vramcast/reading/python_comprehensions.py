"""Comprehensions whose list or mapping a program's tree tells: what they keep of it, what they make of each element."""

import ast
from collections.abc import Callable
from typing import Any

from vramcast.reading.python_methods import kept_by
from vramcast.reading.python_scopes import called

_MOST = 200  # elements that are worked out

Comprehension = ast.ListComp | ast.DictComp | ast.GeneratorExp
ValueOf = Callable[[ast.expr], Any]
Holds = Callable[[ast.expr], bool | None]


def comprehended(node: Comprehension, elements: list[tuple[str, Any]], value_of: ValueOf, holds: Holds) -> Any:
    """The list or mapping that a comprehension of one loop makes; None where its parts do not tell.

    ``elements``: where the name of the loop and its element stand while one is worked out.
    """
    source = node.generators[0]
    same = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
    own = source.target.elts if isinstance(source.target, ast.Tuple) else [source.target]
    unchanged = [ast.unparse(one) for one in same] == [ast.unparse(one) for one in own]
    call = source.iter if isinstance(source.iter, ast.Call) and called(source.iter) == "items" else None
    items = call is not None and isinstance(call.func, ast.Attribute)
    if unchanged and isinstance(node, ast.DictComp) is items:
        held = source.iter.func.value if items else source.iter  # type: ignore[attr-defined]
        return kept_by(value_of(held), own, source.ifs, value_of)
    return None if isinstance(node, ast.DictComp) else _of_each(node, source, elements, value_of, holds)


def _of_each(
    node: ast.ListComp | ast.GeneratorExp,
    source: ast.comprehension,
    elements: list[tuple[str, Any]],
    value_of: ValueOf,
    holds: Holds,
) -> list[Any] | None:
    """What a comprehension makes of each element: ``[m.strip() for m in names.split(",") if m.strip()]``."""
    held = value_of(source.iter)
    if not isinstance(held, list) or not isinstance(source.target, ast.Name) or len(held) > _MOST:
        return None
    found: list[Any] = []
    for one in held:
        elements.append((source.target.id, one))
        try:
            truths = [holds(test) for test in source.ifs]
            if None in truths:
                return None
            found += [value_of(node.elt)] if all(truths) else []
        finally:
            elements.pop()
    return found
