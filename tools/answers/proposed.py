"""Questions that the program's own tables call for: releases at both sides of each border, options, classes, cards, schemes.

``build_answers.py --propose`` adds those that no topic asks yet, so that a new row of a table is asked once it stands there.
"""

import shlex
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from answers.asking import configs
from vramcast.hardware.accelerator import catalogue
from vramcast.models.quantization.formats import ALIASES, NAMED
from vramcast.models.reading import known_ids, read_model
from vramcast.serving.engines.llama_cpp.file_types import BASE
from vramcast.training.adapters.kinds import KINDS
from vramcast.training.frameworks import names as frameworks
from vramcast.training.frameworks.releases import RELEASED
from vramcast.training.methods import HELD, PARTIALS, PROMPTS, REFUSED, TASKS
from vramcast.training.optimizers.rows import ROWS

RULES = Path(__file__).parents[2] / "tests" / "against_sources" / "rules.toml"
Asked = Iterator[tuple[str, str]]

QWEN, LLAMA, GEMMA = "Qwen/Qwen2.5-7B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", "google/gemma-3-27b-it"
MIXTURE, LATENT, HYBRID = "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3", "Qwen/Qwen3-Next-80B-A3B-Instruct"
GPT_OSS, VISION = "openai/gpt-oss-20b", "Qwen/Qwen2.5-VL-7B-Instruct"


def proposed() -> Asked:
    """Topic and question."""
    yield from _releases()
    yield from _models()
    yield from _schemes()
    yield from _cards()
    yield from _training()


def _row(kind: str, flag: str, values: Iterable[str], question: str) -> str:
    return shlex.join([kind, flag, *dict.fromkeys(values)]) + f" : {question}"


@cache
def borders(engine: str) -> list[tuple[int, ...]]:
    """Every release from which some rule of an engine holds, as the facts of tests/against_sources name them."""
    rules = tomllib.loads(RULES.read_text("utf-8"))["rule"]
    own = (rule for rule in rules if f".engines.{engine}." in rule["module"])
    return sorted({tuple(map(int, row[0].split("."))) for rule in own for row in rule["rows"]} - {(0,)})


def _around(found: Iterable[tuple[int, ...]]) -> list[str]:
    """Each border and the release just below it."""
    return [".".join(map(str, one)) for border in found for one in (_below(border), border)]


def _below(border: tuple[int, ...]) -> tuple[int, ...]:
    *head, last = border
    return (*head, last - 1, 99) if last else _below(tuple(head))


_SERVED = {
    "vllm": (
        f"{QWEN} --gpu H100", f"{QWEN} --gpu 4090 --max-model-len 16384", f"{GEMMA} --gpu H100x2",
        f"{MIXTURE} --gpu B200", f"{LATENT} --gpu H200x8", f"{HYBRID} --gpu H200x2", f"{GPT_OSS} --gpu H100",
        f"{VISION} --gpu A100-80G", f"{LLAMA} --gpu L40Sx4 --tp 2 --pp 2", f"{LLAMA} --gpu H100 --enable-lora --max-lora-rank 64",
        f"{LLAMA} --gpu A100-40Gx3 --tp 1 --pp 3", f"{QWEN} --gpu GB10", f"{LLAMA} --gpu H100 --enforce-eager --entry offline",
        f"{MIXTURE} --gpu H100 --quant fp8", f"{LLAMA} --gpu B200 --max-num-seqs 2048",
    ),
    "sglang": (
        f"{QWEN} --gpu H100", f"{QWEN} --gpu 4090", f"{LATENT} --gpu H200x8", f"{HYBRID} --gpu H200x2",
        f"{GEMMA} --gpu A100-80Gx2", f"{LLAMA} --gpu H20x2 --pp 2 --tp 1", f"{LLAMA} --gpu MI300X",
    ),
    "tensorrt_llm": (f"{QWEN} --gpu H100", f"{LATENT} --gpu H200x8", f"{GPT_OSS} --gpu B200"),
    "transformers": (
        f"{QWEN} --gpu H100", f"{GEMMA} --gpu H100x2 --context 32768", f"{LATENT} --gpu H200x16", f"{HYBRID} --gpu H200x2",
        "microsoft/Phi-3.5-mini-instruct --gpu 4090 --quant fp8", "state-spaces/mamba-2.8b-hf --gpu 4090",
        "deepseek-ai/DeepSeek-V3.2 --gpu H200x16 --context 8192", "google/gemma-2-9b-it --gpu L40S --context 8192",
        f"{LLAMA} --gpu L40S --context 8192",
    ),
}  # fmt: skip
_GGUF = (
    f"{QWEN} --quant Q4_K_M --gpu 3090 -c 32768", f"{GEMMA} --quant Q4_K_M --gpu 3090x2 -c 16384",
    f"{MIXTURE} --quant Q5_K_M --gpu 3090 -c 8192 -fa off", f"{LATENT} --quant Q2_K --gpu H200x4 -c 4096",
    f"{GPT_OSS} --quant MXFP4 --gpu 4090 -c 16384", f"{HYBRID} --quant Q4_K_M --gpu H100 -c 8192 -np 4",
    f"{LLAMA} --quant Q8_0 --gpu 3090 -c 8192 -ngl 20", f"{LLAMA} --quant Q8_0 --gpu 'RX 7900 XTX' --devices vulkan -c 8192",
)  # fmt: skip


def _releases() -> Asked:
    """Every release of every table, at both sides."""
    for engine, questions in _SERVED.items():
        own = borders(engine)
        for question in questions:
            values = [f"{engine}=={version}" for version in _around(own)] + [engine]
            yield f"serving_{engine}_releases", _row("along", "--engine", values, f"serve {question}")
    builds = [str(build[0] - below) for build in borders("llama_cpp") for below in (1, 0)]
    for question in _GGUF:
        values = [*(f"llama_cpp==b{build}" for build in builds), "llama_cpp", "ik_llama_cpp", "ollama"]
        yield "serving_llama_cpp_releases", _row("along", "--engine", values, f"serve {question}")


def _models() -> Asked:
    """Every kind of config read, and every kind of known model served by every engine that takes it, and trained."""
    for name in configs():
        yield "models", f"model config:{name}"
    for name in _kinds():
        yield "training_models", f"train {name} --gpu H200x8 --fsdp 2 --seq 512"
        engines = ("vllm --enforce-eager", "sglang", "tensorrt_llm", "transformers", "llama_cpp --quant Q4_K_M")
        yield "serving_models", _row("each", "+", [f"--engine {one}" for one in engines], f"serve {name} --gpu H200x2 --tp 1")


def _kinds() -> list[str]:
    """The smallest known model of each kind: its class, the text class inside, and what its layers are."""
    found: dict[tuple[object, ...], tuple[int, str]] = {}
    for name in known_ids():
        model = read_model(name)
        layers = {(tuple(type(m).__name__ for m in b.mixers), type(b.feedforward).__name__) for b in model.blocks}
        key = (model.family, model.text_class, frozenset(layers))
        found[key] = min(found.get(key, (2**62, "")), (model.parameters, name))
    return sorted(name for _, name in found.values())


def _schemes() -> Asked:
    """Every scheme by every name, every file type, every type of a cache."""
    for model in (LLAMA, MIXTURE):
        yield "serving_schemes", _row("each", "--quant", (*NAMED, *ALIASES), f"serve {model} --gpu H200 --enforce-eager")
    for model in (LLAMA, GEMMA, MIXTURE, "mistralai/Mixtral-8x7B-Instruct-v0.1", GPT_OSS, "tiiuae/falcon-7b"):
        yield (
            "serving_llama_cpp",
            _row("each", "--quant", (*BASE, "Q4_K", "MXFP4"), f"serve {model} --engine llama_cpp --gpu H200 -c 4096"),
        )
    for model in (LLAMA, LATENT):
        from vramcast.serving.engines.llama_cpp.options import CACHE_TYPES

        values = [f"-ctk {k} -ctv {v} -fa on" for k in CACHE_TYPES for v in {k, "f16"}]
        yield (
            "serving_llama_cpp",
            _row("each", "+", sorted(values), f"serve {model} --engine ik_llama_cpp --quant Q4_K_M --gpu H200x8 -c 4096"),
        )


def _cards() -> Asked:
    """One card of each architecture, vendor, form and size: what an engine plans on it, how fast it serves and trains."""
    kinds = {
        (c.vendor, c.architecture, c.capability, c.unified, c.visible_bytes // 2**34 // 4): c.name for c in catalogue().values()
    }
    cards = sorted(kinds.values())
    yield "hardware", _row("each", "+", [shlex.quote(card.name) for card in catalogue().values()], "card")
    for question in (QWEN, f"{QWEN} --engine sglang", GPT_OSS, f"{QWEN} --engine llama_cpp --quant Q4_K_M"):
        yield "serving_cards", _row("each", "--gpu", cards, f"serve {question} --context 8192")
    yield "serving_cards", _row("each", "--gpu", [f"{one}x2" for one in cards], f"serve {QWEN} --context 8192")
    yield (
        "speed_cards",
        _row("each", "--gpu", cards, f"speed serve {QWEN} --context 8192 --prompt 1000 --output 200 --concurrency 8"),
    )
    yield (
        "speed_cards",
        _row("each", "--gpu", cards, f"speed serve {QWEN} --engine llama_cpp --quant Q4_K_M -c 8192 --prompt 1000"),
    )
    yield "speed_cards", _row("each", "--gpu", [f"{one}x8" for one in cards], f"speed train {LLAMA} --fsdp 2 --seq 2048")
    yield "training_cards", _row("each", "--gpu", cards, f"train {LLAMA} --method lora --seq 1024")


_DATED_BY_TRANSFORMERS = ("hf_trainer", "unsloth")


def _training() -> Asked:
    """Every framework and release, method, adapter, optimizer, scheme of frozen weights."""
    for framework in frameworks():
        for verb in ("", "recipe "):
            yield "training_frameworks", f"{verb}train {LLAMA} --gpu H100x8 --framework {framework} --seq 1024"
            yield "training_frameworks", f"{verb}train {LLAMA} --gpu H100 --framework {framework} --method lora --seq 1024"
        if framework not in RELEASED and framework not in _DATED_BY_TRANSFORMERS:
            continue
        own = _around([release for release, _ in RELEASED.get(framework, RELEASED["transformers"])])
        values = [f"{framework}=={version}" for version in own]
        for method in ("full", "qlora"):
            yield (
                "training_releases",
                _row("along", "--framework", values, f"recipe train {LLAMA} --gpu H100x8 --method {method}"),
            )
            yield (
                "training_releases",
                _row("along", "--framework", values, f"train {LLAMA} --gpu H100x8 --method {method} --seq 1024"),
            )
    yield (
        "training_methods",
        _row("each", "--method", (*TASKS, *PARTIALS, "lora", "qlora", *KINDS, *PROMPTS), f"train {LLAMA} --gpu H100 --seq 1024"),
    )
    for gpus in ("H100", "H100x8 --zero 3", "H100x8 --fsdp 2"):
        yield (
            "training_optimizers",
            _row("each", "--optimizer", [row.name for row in ROWS], f"train {QWEN} --gpu {gpus} --seq 1024"),
        )
    yield (
        "training_optimizers",
        _row("each", "--optimizer", [row.name for row in ROWS], f"speed train {QWEN} --gpu H100 --seq 1024"),
    )
    yield "training_schemes", _row("each", "--quant", (*HELD, *REFUSED), f"train {LLAMA} --gpu H100 --method lora --seq 1024")
