"""What was said in a person's words as flags of ``serve``, ``train`` and ``plan``."""

import re

from vramcast.asking.plain_words import DTYPES, FILES, METHODS

ADAPTERS_RANK = "16"  # of an adapter beside a preference task, where none was said: lora_r of TRL's ModelConfig
_DAYS = {"d": 1, "天": 1, "w": 7, "周": 7}
# Settings that not every command has, with the flags that take them: what has none is told as not read.
SETTINGS_FLAGS = {
    "deadline": ("deadline",), "tokens": ("tokens",), "task": ("method",), "rank": ("rank",), "framework": ("framework",),
    "zero": ("zero",), "fsdp": ("fsdp",), "batch": ("micro-batch", "concurrency", "best", "only"),
    "max-num-seqs": ("max-num-seqs",), "gpu-memory-utilization": ("gpu-memory-utilization",),
}  # fmt: skip
_OF_VLLM = ("max-num-seqs", "gpu-memory-utilization")


def serving_flags(said: dict[str, str], card: str) -> list[str]:
    if any(name in said for name in _OF_VLLM):
        said.setdefault("engine", "vllm")
    cache = _cache_type(said, card)
    kind = type_of(said["quant"].lower(), said.get("engine", ""), card) if "quant" in said else ""
    if re.match(r"I?Q\d", kind) and "engine" not in said and not re.match(r"m\d|apple|mac", card, re.I):
        said["engine"] = "llama.cpp"  # a type of GGUF files
    if "batch" in said:
        said.setdefault("concurrency", said["batch"])
    flags = [f"--{name}={said[name]}" for name in ("context", "concurrency", "engine") if name in said]
    flags += [f"--dtype={DTYPES[said['dtype'].lower()[:2]]}"] if "dtype" in said and not kind else []
    flags += [f"--kv-dtype={cache}"] if cache else []
    flags += [f"--quant={kind}"] if kind else []
    return [*flags, *(f"--{name}={said[name]}" for name in _OF_VLLM if name in said)]


def _cache_type(said: dict[str, str], card: str) -> str:
    """The type of the cache under an engine; four bits are llama.cpp's, whose servers alone have them."""
    word = said.get("kv", "").lower()
    if word.startswith(("q4", "4")):
        said.setdefault("engine", "llama.cpp")
    files = _takes_files(said.get("engine", ""), card)
    return "q4_0" if word.startswith(("q4", "4")) else ("q8_0" if files else "fp8") if word.startswith(("q8", "8")) else word


def _takes_files(engine: str, card: str) -> bool:
    """Whether GGUF files run there: under llama.cpp and its kin, which is what runs on Apple's chips."""
    return engine.lower().startswith(("llama", "ollama")) or re.match(r"m\d|apple|mac", card, re.I) is not None


def type_of(quant: str, engine: str, card: str) -> str:
    """The scheme that a word means under an engine: four bits are a GGUF file's under llama.cpp, AWQ's elsewhere."""
    files = _takes_files(engine, card)
    if re.match(r"4|int4", quant):
        return "Q4_K_M" if files else "awq"
    if re.match(r"8", quant):
        return "Q8_0" if files else "fp8"
    return FILES.get(quant.upper(), quant.upper()) if re.match(r"i?q\d|qat", quant) else quant


def bits_of(quant: str) -> str:
    """The bits of a weight in a word of quantisation: 8 of q8_0, 4 of awq; "" for none."""
    digit = re.search(r"\d", quant)
    return digit[0] if digit else "4" if quant else ""


_FOUR_BITS = ("4bit", "4-bit", "4bits", "4-bits", "nf4", "int4")
_EIGHT_BITS = re.compile(r"8[- ]?bits?|int8", re.I)


def _method(said: dict[str, str]) -> str:
    return METHODS.get(said.get("method", ""), said.get("method", "")).lower()


def trains_in(said: dict[str, str]) -> bool:
    """Whether the training takes its frozen weights in the type that the line says."""
    four, eight = said["quant"].lower() in _FOUR_BITS, _EIGHT_BITS.fullmatch(said["quant"])
    return _method(said) in (("", "lora", "qlora") if four else ("", "lora") if eight else ())


def training_flags(said: dict[str, str], *, plan: bool = False) -> list[str]:
    """The flags of ``train``, or of ``plan train``, which has no micro-batch, sharding, framework or preference task."""
    method, task = _method(said), said.get("task", "").lower()
    if said.get("quant", "").lower() in _FOUR_BITS and method in ("", "lora"):
        method = "qlora"
    eight = _EIGHT_BITS.fullmatch(said.get("quant", "")) is not None and method != "qlora"
    if (eight and method in ("", "lora")) or ("rank" in said and not method):
        method = "lora"  # weights in eight bits are frozen ones: load_in_8bit of the Trainer's programs
    if said.get("framework", "").lower() == "unsloth" and not method and not task:
        method = "qlora"  # FastLanguageModel.from_pretrained: load_in_4bit is True by default
    adapts = method in ("lora", "qlora")
    flags = [f"--method={method if plan or not task else task}"] if method or (task and not plan) else []
    rank = said.get("rank", ADAPTERS_RANK if task and not plan else "") if adapts else ""
    flags += [f"--rank={rank}"] if rank else []
    flags += ["--quant=nf4"] if task and method == "qlora" and not plan else []
    flags += ["--quant=int8"] if eight and method == "lora" and not plan else []
    flags += [f"--seq={said['context']}"] if "context" in said else []
    flags += [f"--{name}={said[name]}" for name in ("samples", "epochs", "tokens") if name in said]
    if plan:
        return flags + ([f"--deadline={_time(said['deadline'])}"] if "deadline" in said else [])
    flags += [f"--micro-batch={said['batch']}"] if "batch" in said else []
    flags += [f"--zero={said['zero']}"] if "zero" in said else []
    flags += ["--fsdp"] if "fsdp" in said else []
    return flags + (
        [f"--framework={said['framework'].lower().replace(' ', '_').replace('-', '_')}"] if "framework" in said else []
    )


def _time(said: str) -> str:
    """A time as --deadline takes it: 30 days, 30天 and 2 weeks in days, others in hours."""
    number, unit = int(re.sub(r"\D", "", said)), re.sub(r"[\d\s]", "", said)[:1].lower()
    return f"{number * _DAYS[unit]}d" if unit in _DAYS else f"{number}h"
