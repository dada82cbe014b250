"""The example notebooks, executed: ``python tools/build_notebooks.py`` writes examples/*.ipynb with their outputs.

No notebook server is needed: the cells run in this process, in order, and what the last line of a cell gives is shown by its own
``_repr_html_``, as a notebook does. ``tests/examples`` runs every cell again.
"""

import ast
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "examples"
NOTEBOOKS: dict[str, list[str]] = {
    "serving": [
        "# Serving: will it fit, and how fast?\n\nThe answers of `vramcast serve`, as values. No download, no GPU.",
        'import vramcast\n\nasked = {"gpu": "RTX 4090", "context": "32k", "prompt": 1000, "output": 300}\n'
        'answer = vramcast.serve("Qwen/Qwen2.5-7B-Instruct", **asked)\nanswer',
        "The verdict, and what stands behind it: every number is a field.",
        "answer.fit.verdict, answer.worst.needed_bytes, answer.limits.max_concurrency",
        "[(term.name, term.bytes, term.why) for term in answer.worst.terms][:3]",
        "A model that does not fit comes with what would make it fit.",
        'large = vramcast.serve("Qwen/Qwen2.5-72B", gpu="H100x2", context=32768, concurrency=8)\nlarge',
        "[(advice.change, advice.then_verdict) for advice in large.advice]",
    ],
    "training": [
        "# Training: which moment of the step binds?\n\nThe answers of `vramcast train`, as values.",
        'import vramcast\n\nasked = {"method": "lora", "seq": 4096, "checkpointing": "full"}\n'
        'step = vramcast.train("meta-llama/Llama-3.1-8B", gpu="H100", **asked)\nstep',
        "The peak is a maximum over the moments of a step; each has its own ledger.",
        "[(instant.name, instant.bytes) for instant in step.worst.instants]",
        "Full training of the same model needs more cards.",
        'full = vramcast.train("meta-llama/Llama-3.1-8B", gpu="H100x8", fsdp=2, seq=8192, checkpointing="full")\nfull',
        'full.speed["step_s"], full.speed["mfu"]',
    ],
}


def main() -> None:
    """Write every notebook with its outputs."""
    FOLDER.mkdir(exist_ok=True)
    for name, cells in NOTEBOOKS.items():
        (FOLDER / f"{name}.ipynb").write_text(json.dumps(notebook(cells), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def notebook(texts: list[str]) -> dict[str, Any]:
    """The notebook of these cells in order: code where the text parses as Python and is no heading or sentence, else Markdown."""
    names: dict[str, Any] = {}
    cells = []
    for number, text in enumerate(texts):
        cell: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}
        if _is_code(text):
            found = run(text, names)
            cell |= {
                "cell_type": "code",
                "execution_count": number,
                "outputs": [_output(found, number)] if found is not None else [],
            }
        else:
            cell["cell_type"] = "markdown"
        cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def run(text: str, names: dict[str, Any]) -> Any:
    """Run a cell; the value of its last line where that is an expression."""
    tree = ast.parse(text)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names) if last is not None else None


def _is_code(text: str) -> bool:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return False
    return bool(tree.body)


def _output(value: Any, number: int) -> dict[str, Any]:
    data = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = value._repr_html_().splitlines(keepends=True)
    return {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data}


if __name__ == "__main__":
    main()
