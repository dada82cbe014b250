"""What the documentation's site adds to the Markdown: the answers of its first page, and links that stay inside it.

``mkdocs`` calls these by their names (mkdocs.yml). The answers are worked out while the site is built, so they are never old.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))
MODELS = (
    "Qwen/Qwen2.5-7B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-8B", "openai/gpt-oss-20b",
    "google/gemma-3-12b-it", "Qwen/Qwen3-32B", "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-3.3-70B-Instruct",
)  # fmt: skip
CARDS = ("RTX 3060", "RTX 4090", "RTX 5090", "L40S", "A100-80G", "H100", "H200", "MI300X")
CONTEXTS = (4096, 16384, 32768)
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#]+)(?:#[^)]*)?\)")


def answers() -> dict[str, Any]:
    """Verdict, headline and parts of every model on every card at every length, in both languages' words."""
    from vramcast.asking.serving import serving_question
    from vramcast.asking.wording import headline_in
    from vramcast.charts.palette import colour_of
    from vramcast.errors import VramcastError
    from vramcast.language import language
    from vramcast.planning.verdict import serving_fit, worst_of
    from vramcast.serving.engines.base import answer_of

    says = {code: language(code) for code in ("en", "zh")}
    found: dict[str, Any] = {}
    names: dict[str, Any] = {}
    for model in MODELS:
        for card in CARDS:
            for context in CONTEXTS:
                try:
                    answer = answer_of(serving_question(model, gpu=card, context=context).question)
                except VramcastError as error:
                    found[f"{model}|{card}|{context}"] = {"refused": str(error)}
                    continue
                fit, worst = serving_fit(answer, answer.resolved.card), worst_of(answer.ranks)
                parts = [(term.name, round(term.bytes / 2**30, 2)) for term in worst.terms if term.bytes]
                names |= {n: [colour_of(n), *(say.word("term", n) for say in says.values())] for n, _ in parts if n not in names}
                words = [
                    [say(f"verdict-{'refused' if fit.refused else fit.verdict}"), headline_in(fit, say)] for say in says.values()
                ]
                found[f"{model}|{card}|{context}"] = {
                    "verdict": fit.verdict, "words": words, "parts": parts, "needed": round(worst.needed_bytes / 2**30, 2),
                    "capacity": round((fit.capacity_bytes or 0) / 2**30, 2), "at_once": round(answer.max_concurrency, 1),
                    "command": f'vramcast serve {model} --gpu "{card}" --context {context}',
                }  # fmt: skip
    return {"models": MODELS, "cards": CARDS, "contexts": CONTEXTS, "names": names, "answers": found}


def on_files(files: Any, config: Any) -> Any:
    """Add the answers to the files of the site."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "site/answers.json", content=json.dumps(answers(), ensure_ascii=False)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files beside the documentation become their names."""
    if "/" in page.file.src_uri:  # one folder down, ``..`` is the documentation itself
        return markdown
    return _OUTSIDE.sub(r"\1 (`\2`)", markdown)
