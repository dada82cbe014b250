"""Arithmetic that takes numbers or arrays alike, so that one formula serves one estimate and a million; nothing is imported."""

from typing import Any

from vramcast.models.pairs import smaller

__all__ = ["larger", "smaller", "whole"]


def larger(a: Any, b: Any) -> Any:
    """The larger of two numbers, or of two arrays element by element."""
    return (a + b + abs(a - b)) / 2


def whole(x: Any) -> Any:
    """Rounded up to the next whole number."""
    return -(-x // 1)
