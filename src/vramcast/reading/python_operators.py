"""Operators of a Python program on values that its tree tells, and what its tests of the card find on the one that is asked."""

import ast
import re
from collections.abc import Callable
from typing import Any

_LARGEST_POWER, _LARGEST_BASE = 16, 10**6
_LARGEST, _LONGEST = 1e12, 400  # what a length or a batch is worked out with
_OTHER_DEVICES = re.compile(r"(?:^|[._])(?:mps|xpu|npu|mlu|hpu|musa)(?:[._]|$)")
AMPERE = (8, 0)  # the first generation with bfloat16 and with what flash attention 2 needs
TODAY = (9, 0)  # a card of today, where nobody named one
OF_CARD = ("is_available", "is_bf16_supported", "is_bfloat16_supported", "is_flash_attn_2_available", "get_device_capability")
"""Calls about the card."""
OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b if 0 <= b <= _LARGEST_POWER and abs(a) <= _LARGEST_BASE else float("inf"),
}
COMPARES: dict[type[ast.cmpop], Callable[[Any, Any], bool | None]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Is: lambda a, b: a is b,
    ast.IsNot: lambda a, b: a is not b,
    ast.In: lambda a, b: a in b if isinstance(b, str | list | dict) else False,
    ast.NotIn: lambda a, b: a not in b if isinstance(b, str | list | dict) else False,
    ast.Gt: lambda a, b: a > b if _ordered(a, b) else None,
    ast.GtE: lambda a, b: a >= b if _ordered(a, b) else None,
    ast.Lt: lambda a, b: a < b if _ordered(a, b) else None,
    ast.LtE: lambda a, b: a <= b if _ordered(a, b) else None,
}


def _ordered(left: Any, right: Any) -> bool:
    """Whether two values stand in an order: numbers, or lists of them (a card's generation)."""
    if isinstance(left, list) and isinstance(right, list):
        return all(isinstance(one, int | float) for one in (*left, *right))
    return isinstance(left, int | float) and isinstance(right, int | float)


def on_card(call: ast.Call, name: str, capability: tuple[int, int] | None, *, unsloth: bool) -> Any:
    """What one of ``OF_CARD`` returns on a card of this generation (None: of today).

    torch's own is_bf16_supported counts emulation, so it is true before Ampere too (torch 2.4 and later, cuda/__init__.py), but
    where told not to; Unsloth's programs see it without (unsloth/models/_utils.py, is_bfloat16_supported; its __init__ replaces
    torch's).
    """
    held = capability or TODAY
    if name == "get_device_capability":
        return list(held)
    told = [*call.args, *(word.value for word in call.keywords if word.arg == "including_emulation")]
    emulated = not unsloth and not (told and getattr(told[0], "value", None) is False)
    if name == "is_available":  # of CUDA; the devices of other makers are asked for beside it
        return not _OTHER_DEVICES.search(ast.unparse(call.func))
    return held >= AMPERE or (name == "is_bf16_supported" and emulated)


def worked_out(operator: ast.operator, left: Any, right: Any) -> Any:
    """``left operator right`` of numbers, texts, lists and mappings; None for others and for what grows too large."""
    texts, lists = isinstance(left, str) and isinstance(right, str), isinstance(left, list) and isinstance(right, list)
    if isinstance(operator, ast.Add) and (texts or lists):
        return left + right if len(left) + len(right) < _LONGEST else None
    if isinstance(operator, ast.BitOr) and isinstance(left, dict) and isinstance(right, dict):
        return left | right
    numbers = isinstance(left, int | float) and isinstance(right, int | float) and type(operator) in OPERATIONS
    if not numbers or abs(left) > _LARGEST or abs(right) > _LARGEST:
        return None
    if isinstance(operator, ast.FloorDiv | ast.Div) and not right:
        return None
    found = OPERATIONS[type(operator)](left, right)
    return None if found == float("inf") else found
