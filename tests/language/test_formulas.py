"""Formulas and reasons in Chinese: every part of the answers' texts is known, numbers stand where they belong."""

import contextlib
import importlib.util
import io
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

import vramcast
from vramcast.cli import run
from vramcast.language import language, spoken
from vramcast.language.formulas import CUT, NUMBER, _part, phrases, told
from vramcast.ledger import Forecast, Term

_SPEC = importlib.util.spec_from_file_location("random_lines", Path(__file__).parents[2] / "tools" / "random_lines.py")
assert _SPEC and _SPEC.loader
LINES = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(LINES)
RANDOM_ANSWERS = 20
NAMES = re.compile(r"[\w.\-+/:'=* ]*[\d_=./-][\w.\-+/:'=* ]*$|[A-Z][\w ]*$|max|min|ceil|logits|sdpa|flash|dtype|both")


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("4,096 tokens x 32 layers x 8,192 B of each layer's input", "4,096 token x 32 层 x 8,192 B（每层输入）"),
        ("7.62 B parameters, bfloat16, tp=1 ep=1: 14.25 GiB on this rank", "7.62 B 参数，bfloat16, tp=1 ep=1：本 rank 14.25 GiB"),
        ("0.25 GiB of libraries and collectives outside torch at tp=1 pp=2", "tp=1 pp=2 时 torch 之外的库与集合通信 0.25 GiB"),
        ("'H100' may be H100 SXM5 80GB: the smallest memory is taken", "“H100” 可能是 H100 SXM5 80GB：取显存最小的"),
        ("starts; 3.5 of 5 at once", "能启动；同时只能处理 3.5 / 5"),
        ("vllm/v1/worker/gpu_worker.py", "vllm/v1/worker/gpu_worker.py"),
    ],
)
def test_a_formula_in_chinese(english: str, chinese: str) -> None:
    assert told(english, "zh") == chinese
    assert language("en").formula(english) == english


def test_numbers_are_kept_one_by_one() -> None:
    plain, patterns = phrases("zh")
    for english, chinese in [*plain.items(), *((pattern.pattern, said) for pattern, said in patterns)]:
        numbers = english.replace("\\#", "#").count("#")
        assert chinese.count("#") + len(set(re.findall(r"\{\d\}", chinese))) == numbers, english
        assert chinese.count("*") <= english.count("(") + english.count("*"), english


def _walk(term: Term) -> list[str]:
    return [term.why, *(text for part in term.terms for text in _walk(part))]


def _texts(answer: Forecast) -> list[str]:
    whys = [text for rank in answer.ranks for instant in rank.instants for term in instant.terms for text in _walk(term)]
    return [*whys, *(instant.name for rank in answer.ranks for instant in rank.instants)]


def test_the_formulas_of_answers_are_known() -> None:
    asked = [
        vramcast.serve("Qwen/Qwen2.5-7B-Instruct", gpu="4090"),
        vramcast.serve("openai/gpt-oss-20b", gpu="L40S", engine="sglang"),
        vramcast.serve("llama3.1:8b", gpu="3060"),
        vramcast.serve("meta-llama/Llama-3.3-70B-Instruct", gpu="H100x4"),
        vramcast.train("Qwen/Qwen2.5-7B", gpu="A100-80Gx8", fsdp=2),
        vramcast.train("meta-llama/Llama-3.1-8B", gpu="H100", method="qlora", checkpointing="full"),
        vramcast.train("meta-llama/Llama-3.1-70B", gpu="H100x64", framework="megatron", tp=8, pp=4),
    ]
    assert _unknown({text for answer in asked for text in _texts(answer)}) == set()


def _unknown(texts: set[str]) -> set[str]:
    """The parts of texts that have words and no phrase, numbers as ``#``."""
    unknown = set()
    for text in texts:
        for part in CUT.split(text)[::2] if _part(text, "zh") is None else []:
            plain = NUMBER.sub("#", part).strip()
            if re.search(r"[a-z]{2,} [a-z]{2,}", plain) and _part(part, "zh") is None and not NAMES.match(plain):
                unknown.add(plain)
    return unknown


def test_the_reasons_of_random_answers_are_known() -> None:
    """Formulas, assumptions and what is not modelled, of seeded questions as tools/random_lines.py draws them."""
    chance, texts, answers = random.Random(77), set[str](), 0
    while answers < RANDOM_ANSWERS:
        words = LINES.line(chance)
        if words[0] not in ("serve", "train") or "--json" not in words or {"--lang", "--sweep", "--best", "--curve"} & {*words}:
            continue
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = run(words)
        out.flush()
        if code > 1 or not (said := out.buffer.getvalue()).startswith(b"{"):  # type: ignore[attr-defined]
            continue
        answer = json.loads(said)
        if "memory" in answer:
            answers += 1
            texts |= {text for rank in answer["memory"]["per_gpu"] for term in rank["terms"] for text in _told(term)}
            texts |= {a["because"] for a in answer["assumed"]} | {u["what"] for u in answer["unmodelled"]}
    assert _unknown(texts) == set()


def _told(term: dict[str, Any]) -> list[str]:
    return [term["why"], *(text for part in term["terms"] for text in _told(part))]


def test_an_output_without_chinese_letters_is_told_in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setenv("VRAMCAST_LANG", "zh")
    assert spoken().code == "zh"
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="cp1252"))
    assert spoken().code == "en"
