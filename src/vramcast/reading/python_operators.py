"""Operators of a Python program on values that its tree tells, and tests of the machine that it runs on."""

import ast
from collections.abc import Callable
from typing import Any

_LARGEST_POWER, _LARGEST_BASE = 16, 10**6
OF_CARD = ("is_available", "is_bf16_supported", "is_bfloat16_supported")
"""Calls that are true on a card of today."""
MACHINE = (*OF_CARD, "exists", "is_flash_attn_2_available")
"""Calls that count as passed where a branch tests them."""
OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b if 0 <= b <= _LARGEST_POWER and abs(a) <= _LARGEST_BASE else float("inf"),
}
COMPARES: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Is: lambda a, b: a is b,
    ast.IsNot: lambda a, b: a is not b,
    ast.In: lambda a, b: a in b if isinstance(b, str | list | dict) else False,
    ast.NotIn: lambda a, b: a not in b if isinstance(b, str | list | dict) else False,
}


def is_of_card(test: ast.Compare) -> bool:
    """Whether a test asks for a card's generation, which a card of today has: ``get_device_capability()[0] >= 8``."""
    whole = ast.unparse(test.left)
    ordered = len(test.ops) == 1 and isinstance(test.ops[0], ast.Gt | ast.GtE | ast.Lt | ast.LtE)
    return ordered and "get_device_capability" in whole and isinstance(test.comparators[0], ast.Constant | ast.Tuple)
