"""The code of a Python program without the texts of several lines that it holds: samples, templates, docstrings."""

import ast
import warnings


def without_texts(text: str) -> str:
    """The program with every text of several lines left blank; as it is where it is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    lines = text.splitlines()
    for node in ast.walk(tree):
        long = isinstance(node, ast.Constant) and isinstance(node.value, str) and (node.end_lineno or 0) > node.lineno
        one = isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value
        if long or one:
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)  # type: ignore[attr-defined]
    return "\n".join(lines)
