"""Write docs/questions.md: the questions that people ask in forums, each with one command and the lines that answer it.

``QUESTIONS`` is the page's content; a test runs every command. Outputs are written anew with each release.
"""

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

from vramcast.cli import run

TARGET = Path(__file__).parents[1] / "docs" / "questions.md"
_LONGEST, _MOST = 118, 12


class Question(NamedTuple):
    """What is asked, the command that answers, patterns of the lines to show (each has one), and what to know."""

    asked: str
    command: str
    shows: tuple[str, ...]
    note: str = ""


_OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted}. GPU 0 has a total capacity of 79.15 GiB of which "
    "1.42 GiB is free. Including non-PyTorch memory, this process has 77.71 GiB memory in use. Of the allocated memory "
    "{allocated} is allocated by PyTorch, and {cached} is reserved by PyTorch but unallocated."
)
_LATE = "1423/3846 [4:31:02<7:41:29, 11.43s/it] " + _OOM.format(wanted="2.61 GiB", allocated="65.20 GiB", cached="11.24 GiB")
_PIECES = _OOM.format(wanted="512.00 MiB", allocated="66.20 GiB", cached="10.24 GiB")
_LOSS = 'File "/site-packages/transformers/loss/loss_utils.py", line 47, in ForCausalLMLoss ' + _OOM.format(
    wanted="9.37 GiB", allocated="74.20 GiB", cached="2.24 GiB"
)
_EVALUATION = 'File "/site-packages/transformers/trainer.py", line 4255, in evaluation_loop ' + _OOM.format(
    wanted="4.52 GiB", allocated="74.20 GiB", cached="2.24 GiB"
)
_BLOCKS = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
_FRACTION = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
_ADVICE = (r"^  (fits|tight) {3,}-",)

QUESTIONS: dict[str, tuple[Question, ...]] = {
    "Will it fit?": (
        Question(
            "1. How much memory does this model need, to run and to fine-tune?",
            "fit Qwen/Qwen2.5-7B-Instruct",
            ("vLLM ", r"llama\.cpp", "HF Trainer", "Unsloth"),
            "Every usual precision and method at a stated context and batch, with the fewest and smallest cards for each.",
        ),
        Question(
            "2. I have four 24 GB cards. Full fine-tuning, LoRA or QLoRA?",
            "fit Qwen/Qwen2.5-7B --gpu 4090x4 --only train",
            ("^TRAINS", "full", "LoRA"),
            "The first line is the way that loses least. Several cards share the weights (`--fsdp`); copies shrink nothing.",
        ),
        Question(
            "3. Why does a 7B model take 22 GB in the engine?",
            "serve Qwen/Qwen2.5-7B-Instruct --gpu 4090",
            ("^FITS", "^ +needed", "^ +claimed"),
            "An engine claims a share of the card, needed or not.",
        ),
        Question(
            "4. MoE: total or active parameters?",
            "models Qwen/Qwen3-30B-A3B",
            ("^  loaded", "^  active", "as published"),
            "All must be in memory; the active ones decide the speed.",
        ),
        Question(
            "5. nvidia-smi shows more than torch allocated: where is the rest?",
            "train Qwen/Qwen2.5-0.5B --gpu 4090 --seq 1024",
            ("^  . fragmentation|^  fragmentation", "^  . context|^  context", "allocated .*reserved .*device"),
            "Reserved is allocated and fragmentation; device is reserved, the CUDA context and what libraries hold.",
        ),
    ),
    "Largest context, batch, users": (
        Question(
            "6. The largest --max-model-len on this card?",
            "serve Qwen/Qwen3-32B-AWQ --gpu 4090 --best context",
            ("at once|tokens  ", "vllm serve"),
            "Setting by setting, the cheapest first; each value surely fits, and the last line starts it.",
        ),
        Question(
            "7. How much is the KV cache of a token, of a windowed model?",
            "models google/gemma-3-27b-it",
            ("^  cache",),
            "Windows kept and whole differ by six; `serve` says which an engine keeps.",
        ),
        Question(
            "8. How many users at 4K on one H100?",
            "serve meta-llama/Llama-3.1-8B-Instruct --gpu H100 --context 4096 --prompt 3000 --output 1000 --slo tpot=50ms",
            ("sequences at once", "largest rate", "tokens/s, one user", "within the service"),
            "Three limits: the cache, the engine's own number of sequences, and the times that users accept.",
        ),
        Question(
            "9. 70B, 128K context, 5 people at once: how much, and how fast?",
            "serve meta-llama/Llama-3.3-70B-Instruct --gpu H100x8 --context 128K --concurrency 5 --prompt 100000 --output 1000",
            ("^FITS", "kv_cache", "^ +needed", "time to first", "time per output", "tokens/s"),
        ),
        Question(
            "10. The largest micro-batch for my LoRA?",
            "train meta-llama/Llama-3.1-8B --gpu A100-80G --method lora --checkpointing full --seq 4096",
            ("^FITS", "largest micro-batch", "longest sequence, "),
        ),
    ),
    "Which card?": (
        Question(
            "11. Which GPU for a 32B?",
            "serve Qwen/Qwen3-32B-AWQ --context 16384",
            (r"^  \d+ x ",),
            "Fewest cards first, then the smallest; bandwidth decides how fast one user is answered.",
        ),
        Question(
            "12. Does the paper's recipe run on a smaller card?",
            "train meta-llama/Llama-3.1-8B --gpu 4090 --method lora --seq 2048",
            ("^DOES NOT", *_ADVICE),
            "Each piece of advice was asked again before it was printed, and says what it costs.",
        ),
        Question(
            "13. Why is my bigger card slower?",
            "gpus A6000 4090",
            ("memory, GiB", "bandwidth", "bf16 1", "^  so "),
        ),
        Question(
            "14. What holds DeepSeek-R1?",
            "fit deepseek-ai/DeepSeek-R1 --only run",
            ("vLLM ", r"llama\.cpp"),
        ),
    ),
    "Why did I run out of memory?": (
        Question(
            "15. It ran for hours, then out of memory.", f"explain {shlex.quote(_LATE)}", ("^CUDA", "cached by", "steps held")
        ),
        Question(
            "16. Reserved is far more than allocated.",
            f"explain {shlex.quote(_PIECES)}",
            (r"tensors \(alloc", "cached by", "expandable"),
        ),
        Question("17. Out of memory at the loss.", f"explain {shlex.quote(_LOSS)}", ("while computing", "fused or chunked")),
        Question(
            "18. Out of memory while evaluating.",
            f"explain {shlex.quote(_EVALUATION)}",
            ("while eval", "accumulation_steps", "eval_batch"),
        ),
        Question(
            "19. vLLM: no available memory for the cache blocks. Raise or lower?",
            f"explain {shlex.quote(_BLOCKS)}",
            ("^vllm", "utilization, if", "batched-tokens"),
            "With the model and the card, `vramcast serve` says which of these is enough, to the hundredth.",
        ),
        Question(
            "20. SGLang says raise, the docs say lower the fraction.",
            f"explain {shlex.quote(_FRACTION)}",
            ("^sglang", "mem-fraction"),
        ),
        Question(
            "21. GRPO with vLLM on the same card.",
            "train Qwen/Qwen2.5-7B --method grpo --gpu H100x8 --use_vllm --vllm_mode colocate --num_generations 8 --fsdp",
            ("^FITS|^DOES|^TIGHT", "tenant", "optimizer  ", "^ +needed"),
            "Two tenants: the peak of the training step, and the engine's share of the card.",
        ),
    ),
    "How do I make it fit?": (
        Question(
            "22. Full fine-tuning of an 8B: what first?",
            "train meta-llama/Llama-3.1-8B --gpu 4090",
            ("^DOES NOT", *_ADVICE, "not alone"),
        ),
        Question(
            "23. Why does LoRA take as much as full fine-tuning?",
            "train meta-llama/Llama-3.1-8B --gpu 4090 --method lora",
            ("are trained", "^  . activations|^  activations", *_ADVICE),
            "Activations do not shrink with the number of trained weights.",
        ),
        Question(
            "24. I added cards and memory per card did not drop.",
            "train Qwen/Qwen2.5-7B --gpu A100-80Gx4 --sweep zero=0,1,2,3",
            ("zero=0", r"^ +\d"),
            "Copies on every card shrink nothing; each ZeRO stage cuts another term.",
        ),
        Question(
            "25. QLoRA with ZeRO-3 or FSDP: are the weights cut?",
            "train meta-llama/Llama-2-70b-hf --method qlora --gpu 4090x4 --fsdp",
            ("^FITS|^TIGHT|^DOES", "^  . weights|^  weights", "gathered"),
        ),
        Question(
            "26. A bf16 model under FSDP has the size of float32.",
            "train mistralai/Mistral-7B-v0.1 --gpu A100-80Gx8 --fsdp",
            ("^  . weights|^  weights", "weights = float32"),
        ),
    ),
    "How fast, how long, how well used?": (
        Question(
            "27. Is 65 tokens/s normal for a Llama-2-7B on a 4090?",
            "serve meta-llama/Llama-2-7b-hf --gpu 4090 --prompt 1024 --output 256 --context 2048",
            ("time per output", "tokens/s, one user", "bound by"),
        ),
        Question(
            "28. How long will training take?",
            "train meta-llama/Llama-3.1-8B --gpu H100x8 --fsdp --samples 50000 --epochs 3 --seq 2048",
            ("time of a step", "whole run"),
        ),
        Question("29. TP = 3 fails?", "serve meta-llama/Llama-3.1-8B-Instruct --gpu 4090x3 --tp 3", ("heads",)),
        Question(
            "30. Is my MFU right? Why 104%?",
            "utilization --gpu H100 --tflops 1030",
            ("100% is", "as told", "cannot be", "sparse rate"),
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
        "The thirty that forums ask most, one command each, and the lines of its answer that matter. Questions can also be asked",
        "in words: `vramcast can i run llama 70b on two 3090s`. Written by `tools/build_questions.py`.",
        "",
    ]
    for group, questions in QUESTIONS.items():
        lines += [f"## {group}", ""]
        for question in questions:
            code, text = answer(question.command)
            lines += [f"**{question.asked}**", "", "```", f"$ vramcast {question.command}"]
            lines += [*(_cut(line) for line in shown(question, text)), "```", ""]
            lines += [question.note, ""] if question.note else []
            if code == 2:
                lines += ["(Exit code 2: the question is refused, with what would do.)", ""]
    return "\n".join(lines)


def shown(question: Question, text: str) -> list[str]:
    """The lines of an answer that its patterns name, in the order of the answer; at most twelve."""
    return [line for line in text.splitlines() if any(re.search(pattern, line) for pattern in question.shows)][:_MOST]


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


def main() -> int:
    """Write the page."""
    TARGET.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
