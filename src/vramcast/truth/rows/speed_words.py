"""What a speed row says, as a question: engine, model, storage, layout, card, and the options its source's own scripts set."""

import functools
import re
from typing import Any

import msgspec

from vramcast.errors import VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.models.inventory import Model
from vramcast.models.reading import read_model
from vramcast.truth.judgement import Unexpressed

Row = dict[str, Any]

# The row's engine, by how its name begins, and the engine whose rules answer; none where there are none.
_ENGINES = (
    ("vllm", "vllm"), ("sglang (pd", ""), ("sglang", "sglang"), ("trtllm", "tensorrt_llm"), ("trt-llm", "tensorrt_llm"),
    ("tensorrt", "tensorrt_llm"), ("llama.cpp (cpu)", ""), ("llama.cpp", "llama_cpp"), ("hf transformers", "transformers"),
    ("transformers", "transformers"), ("litgpt", "litgpt"), ("exllama", "exllama"), ("tinychat", "tinychat"),
    ("autoawq", "autoawq"), ("gpt-fast (eager", "gpt_fast_eager"),
    ("gpt-fast", "gpt_fast"), ("fastertransformer", "fastertransformer"), ("lmdeploy", "lmdeploy"),
)  # fmt: skip
_STORED = {
    "awq": "awq", "awq-int4": "awq", "awq-int4 g128": "awq", "w4a16": "awq", "gptq-int4": "gptq", "gptq-int4 g128": "gptq",
    "gptq g128": "gptq", "gptq-int8": "gptq-int8", "int8": "w8a16", "w8a8": "int8", "bnb-nf4": "nf4", "bnb-nf4-dq": "nf4-dq",
    "int4 g32": "w4a16", "f16": None, "fp16": None, "bf16": None, "float16": None, "nvfp4": "nvfp4", "fp4": "nvfp4",
    "mxfp4": "mxfp4",
}  # fmt: skip
# The checkpoint that was served where a row names the plain model and 4-bit floats.
_FP4 = {"deepseek-ai/DeepSeek-V3": "nvidia/DeepSeek-R1-NVFP4", "deepseek-ai/DeepSeek-R1": "nvidia/DeepSeek-R1-NVFP4"}
_GENERATION = {"vllm": "0.14.0", "sglang": "0.5.9", "tensorrt_llm": "1.3.0"}
_NUMBER = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
# TensorRT-LLM's own releases; its rows of 2026 name the orchestrator's (0.8.1.post1) instead.
_ORCHESTRATOR = "0.8.1"


def engine(row: Row) -> str:
    """The engine whose rules answer. Raises Unexpressed for one without rules."""
    name = str(row["engine"]).lower()
    found = next((engine for start, engine in _ENGINES if name.startswith(start)), "")
    if not found:
        raise Unexpressed(f"no rules say how fast {row['engine']} is")
    return "autoawq_gemv" if found == "autoawq" and row["settings"].get("kernel") == "GEMV" else found


def version(row: Row, name: str) -> tuple[int, ...]:
    """The release as numbers; the one current when the row was written where it names none."""
    text = f"{row.get('version') or ''} {row['engine']}"
    match = _NUMBER.search(text)
    if name == "llama_cpp":
        build = re.search(r"\bb(\d{4,5})\b", text)
        return (int(build[1]),) if build else (3000,) if "2024" in text else (10**6,)
    if name == "tensorrt_llm" and (match is None or text.startswith(_ORCHESTRATOR) or "nvidia" in text.lower()):
        match = None
    if match is None:
        match = _NUMBER.search(_GENERATION.get(name, "99.0"))
    return tuple(int(part) for part in match.groups() if part) if match else (99,)


def card(row: Row) -> Accelerator:
    """The card. Raises Unexpressed for one that is not in the catalogue."""
    try:
        return _card(re.sub(r"\s*\((?:330W|280W|CTS, 1000W|GB10)\)", "", str(row["gpu"])))
    except VramcastError as error:
        raise Unexpressed(f"card {row['gpu']}: {error}") from None


@functools.cache
def _card(name: str) -> Accelerator:
    from vramcast.hardware.cards import parse_gpus

    name = re.sub(r"\s+(\d+)-core$", "", name.replace("Intel Arc", "Arc"))
    return parse_gpus(name).cards[0]


def model(row: Row) -> Model:
    """The model, offline. Raises Unexpressed for one whose shape is not known."""
    name = str(row["model_id"])
    narrow = str(row["settings"].get("precision")) in ("fp4", "nvfp4")
    if narrow:
        name = _FP4.get(name, name)
    try:
        read = _model(name)
        four = str(read.quantization).lower()
        return _plain(read) if narrow and read.quantization and "fp4" not in four else read
    except VramcastError as error:
        raise Unexpressed(f"model {name}: {error}") from None


@functools.cache
def _model(name: str) -> Model:
    try:
        return read_model(name, offline=True)
    except VramcastError:
        if not name.startswith("nvidia/"):
            raise
        return read_model(name.replace("nvidia/Llama", "meta-llama/Llama").replace("nvidia/Qwen", "Qwen/Qwen"), offline=True)


@functools.cache
def _plain_of(name: str) -> Model:
    return msgspec.structs.replace(_model(name), quantization=None)


def _plain(read: Model) -> Model:
    """The model without its checkpoint's own storage: it was served from another, in 4-bit floats."""
    return _plain_of(read.id)


def quant(row: Row, read: Model) -> str | None:
    """The storage of the weights: None keeps the checkpoint's own, ``none`` is 16 bits whatever the checkpoint says."""
    words = str(row["settings"].get("precision") or "").lower()
    if words.startswith("not stated") or words in ("bf16", "fp16", "float16", "f16"):
        return "none" if read.quantization and words.startswith(("bf16", "fp16")) else None
    if words.startswith("fp8"):
        if read.quantization:
            return None
        return "fp8-block" if row["settings"].get("moe_quant") == "fp8_block" or "deepseek" in read.id.lower() else "fp8"
    if read.quantization and words.startswith(("fp4", "nvfp4", "int4", "mxfp4", "awq", "gptq")):
        return None
    if words == "float32":
        raise Unexpressed("float32 weights: no kernel law was fitted for them")
    if words.startswith(("exl2", "2", "3", "4", "5")) and (bits := re.search(r"(\d(?:\.\d+)?) ?bpw", words)):
        return f"exl2-{bits[1]}"
    if words in _STORED:
        return _STORED[words]
    if words == "int4":
        return "w4a16"
    if words.startswith(("q", "ud-q")):
        return _usual_mix(words.removeprefix("ud-").split()[0]).upper()
    raise Unexpressed(f"weights stored as {words!r}")


def _usual_mix(text: str) -> str:
    """The usual mix of the bits of one of Unsloth's own (q4_k_xl); of 8, 6 and 2 bits Q8_0, Q6_K and Q2_K, which have none."""
    plain = text.replace("q8_k_xl", "q8_0").replace("q6_k_xl", "q6_k").replace("q2_k_xl", "q2_k")
    return plain.replace("_k_xl", "_k_m")
