"""Write docs/questions.md: the questions that people ask in forums, each with one command and the lines that answer it.

``QUESTIONS`` is the page's content; a test runs every command. Outputs are written anew with each release.
"""

import contextlib
import io
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

from vramcast.cli import run

TARGET = Path(__file__).parents[1] / "docs" / "questions.md"
_LONGEST = 118


class Question(NamedTuple):
    """What is asked, the command that answers, the words of the lines to show, and what to know."""

    asked: str
    command: str
    shows: tuple[str, ...]
    note: str = ""


QUESTIONS: dict[str, tuple[Question, ...]] = {
    "Will it fit?": (
        Question(
            "How much memory do I need to run this model?",
            "serve Qwen/Qwen2.5-7B-Instruct --context 8192",
            ("weights", "kv_cache", "needed", "1 x"),
            "Without a card the answer is the ledger and the cards that hold it. Context and users decide: they are stated.",
        ),
        Question(
            "I have four 24 GB cards. Is full fine-tuning possible?",
            "train Qwen/Qwen2.5-7B --gpu 4090x4 --fsdp",
            ("FIT", "fits", "tight"),
            "Advice is typed as it stands behind the command; each piece was asked again before it was printed.",
        ),
        Question(
            "Why does a 7B model take 20 GB in the engine?",
            "serve Qwen/Qwen2.5-7B-Instruct --gpu 4090",
            ("needed", "claimed"),
            "An engine claims a share of the card, needed or not.",
        ),
        Question(
            "MoE: total or active parameters?",
            "models Qwen/Qwen3-30B-A3B",
            ("loaded", "active", "as published"),
            "All must be in memory; the active ones decide the speed.",
        ),
        Question(
            "nvidia-smi shows more than torch allocated: where is the rest?",
            "train Qwen/Qwen2.5-0.5B --gpu 4090 --seq 1024",
            ("allocated", "workspace", "fragmentation", "context"),
        ),
    ),
    "Largest context, batch, users": (
        Question(
            "The largest --max-model-len on this card?",
            "serve Qwen/Qwen3-32B-AWQ --gpu 4090 --context auto",
            ("context", "FITS", "largest context"),
            "`auto` is the longest that surely fits; the limit is where the forecast ends.",
        ),
        Question(
            "How much is the KV cache of a windowed model?",
            "models google/gemma-3-27b-it",
            ("cache",),
            "Windows kept and whole differ by six; `serve` says which an engine keeps.",
        ),
        Question(
            "How many users at 4K on one H100?",
            "serve meta-llama/Llama-3.1-8B-Instruct --gpu H100 --context 4096 --max-num-seqs 64",
            ("sequences at once", "tokens of cache"),
        ),
        Question(
            "70B, 128K context, 5 people at once?",
            "serve meta-llama/Llama-3.3-70B-Instruct --gpu H100x4 --context 128K --concurrency 5",
            ("PARTLY", "wants", "fits "),
        ),
        Question(
            "The largest micro-batch for my LoRA?",
            "train meta-llama/Llama-3.1-8B --gpu A100-80G --method lora --checkpointing full --seq 4096",
            ("largest micro-batch", "longest sequence", "peak"),
        ),
    ),
    "Which card?": (
        Question(
            "Which GPU for a 7B?",
            "serve Qwen/Qwen2.5-7B-Instruct --context 8192",
            (" x ",),
            "Bandwidth decides how fast it answers.",
        ),
        Question(
            "Does the paper's recipe run on a smaller card?",
            "train meta-llama/Llama-3.1-8B --gpu 4090 --method lora --seq 2048",
            ("FIT", "fits", "tight"),
        ),
        Question(
            "What holds DeepSeek-R1?",
            "serve deepseek-ai/DeepSeek-R1 --gpu A100-80Gx8 --context 8192",
            ("FIT", "emulated", "fits "),
        ),
        Question(
            "Does it run on my Mac?",
            "serve google/gemma-3-27b-it --gpu 'M3 Max 64GB' --context 8192",
            ("FIT", "engine =", "quant ="),
        ),
        Question(
            "ollama run llama3.1:8b on a 12 GB card?",
            "serve 'ollama run llama3.1:8b' --gpu 3060",
            ("FIT", "weights", "quant =", "engine ="),
        ),
    ),
    "How do I make it fit?": (
        Question(
            "Full fine-tuning of an 8B: what first?",
            "train meta-llama/Llama-3.1-8B --gpu 4090",
            ("FIT", "fits", "tight", "not alone"),
        ),
        Question(
            "Why does LoRA take as much as full fine-tuning?",
            "train meta-llama/Llama-3.1-8B --gpu 4090 --method lora",
            ("trained", "activations", "loss", "fits "),
            "Activations do not shrink with the number of trained weights.",
        ),
        Question(
            "I added cards and memory per card did not drop.",
            "train Qwen/Qwen2.5-7B --gpu A100-80Gx4 --sweep zero=0,1,2,3",
            ("zero",),
            "Copies on every card shrink nothing; each ZeRO stage cuts another term.",
        ),
        Question(
            "vLLM finds no memory for cache blocks: what utilisation?",
            "serve Qwen/Qwen2.5-14B-Instruct-AWQ --gpu 3060 --gpu-memory-utilization 0.6 --context 4096",
            ("FIT", "fits "),
        ),
        Question(
            "SGLang says raise, the docs say lower the fraction.",
            "serve meta-llama/Llama-3.1-8B-Instruct --gpu 4090 --engine sglang --mem-fraction-static 0.4 --context 8192",
            ("FIT", "fits "),
        ),
        Question("TP = 3 fails?", "serve meta-llama/Llama-3.1-8B-Instruct --gpu 4090x3 --tp 3", ("heads",)),
    ),
    "How fast, how long, how well used?": (
        Question(
            "Is that many tokens per second normal?",
            "serve meta-llama/Llama-2-7b-hf --gpu A100-40G --prompt 1024 --output 128 --context 2048",
            ("time", "tokens/s", "bound"),
        ),
        Question(
            "Is my MFU right?", "utilization meta-llama/Llama-3.1-8B --gpu H100x8 --tokens-per-second 9000 --seq 8192", ("MFU",)
        ),
    ),
}


def answer(command: str) -> tuple[int, str]:
    """Exit code and what is printed, errors included."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(shlex.split(command))
    return code, out.getvalue() + err.getvalue()


def page() -> str:
    """The whole page."""
    lines = [
        "# Questions people ask",
        "",
        "One command each, and the lines of its answer that matter. Written by `tools/build_questions.py`.",
        "",
    ]
    for group, questions in QUESTIONS.items():
        lines += [f"## {group}", ""]
        for question in questions:
            code, text = answer(question.command)
            shown = [line for line in text.splitlines() if any(word in line for word in question.shows)][:12]
            lines += [
                f"**{question.asked}**",
                "",
                "```",
                f"$ vramcast {question.command}",
                *(_cut(line) for line in shown),
                "```",
                "",
            ]
            lines += [question.note, ""] if question.note else []
            if code == 2:
                lines += ["(Exit code 2: the question is refused, with what would do.)", ""]
    return "\n".join(lines)


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


def main() -> int:
    """Write the page."""
    TARGET.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
