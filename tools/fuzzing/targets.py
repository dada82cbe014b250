"""What is fuzzed: a name, valid inputs, the damage that suits them, and the reader with the rules behind it."""

import io
import json
import random
import shlex
import struct
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fuzzing import seeds
from fuzzing.edits import as_json, edited_bytes, edited_text, edited_tree
from fuzzing.seeds import small

Make = Callable[[random.Random], Any]


class Target(NamedTuple):
    """``make`` draws one damaged input, bytes or text or a tree; ``ask`` reads it and answers or raises a VramcastError."""

    make: Make
    ask: Callable[[Any], object]


def _trees(trees: Callable[[], Any], form: Callable[[Any], Any] = lambda tree: tree) -> Make:
    """One of the trees, edited, in its form on disk; one in eight has bytes damaged as well."""

    def make(chance: random.Random) -> Any:
        made = form(edited_tree(chance, chance.choice(trees())))
        return edited_bytes(chance, made) if isinstance(made, bytes) and chance.random() < 0.125 else made

    return make


def _texts(texts: Callable[[], tuple[str, ...]]) -> Make:
    return lambda chance: edited_text(chance, chance.choice(texts()), texts())


@cache
def _configs() -> list[dict[str, Any]]:
    return seeds.configs()


@cache
def _quantised() -> list[dict[str, Any]]:
    return [small.CONFIG | {"quantization_config": scheme} for scheme in seeds.schemes()]


def ask_config(data: bytes) -> None:
    """A model of a config.json: its weights, and what vLLM and a Trainer make of it."""
    from vramcast.asking.asked import answer_serving, answer_training
    from vramcast.asking.visitor import asked_of_model
    from vramcast.models.quantization import scheme_for, weight_bytes
    from vramcast.models.sources.described import from_config
    from vramcast.models.sources.strict import parse_json

    model = from_config(parse_json(data, "config.json"), name="fuzz", where="config.json")
    weight_bytes(model, scheme_for(model))
    assert model.parameters >= 0
    if model.parameters % 3 == 0:
        answer_serving(
            asked_of_model(model, {"gpu": "H100", "engine": ("vllm", "llama.cpp", "transformers")[model.parameters // 3 % 3]})
        )
    elif model.parameters % 3 == 1:
        answer_training(asked_of_model(model, {"gpu": "H100", "seq": "512"}, kind="train"))


def _header(tree: dict[str, Any]) -> bytes:
    body = as_json(tree)
    return struct.pack("<Q", len(body)) + body + bytes(64)


@cache
def _headers() -> list[dict[str, Any]]:
    header, _ = small.safetensors_header(small.tensors())
    return [json.loads(header[8:])]


def ask_safetensors(data: bytes) -> None:
    """The header of a safetensors file."""
    from vramcast.models.sources import safetensors

    safetensors.read_header(small.Bytes(data, "x.safetensors", len(data) + 2**20))


def ask_index(data: bytes) -> None:
    """A safetensors index."""
    from vramcast.models.sources.index import shard_names, total_size
    from vramcast.models.sources.strict import parse_json

    raw = parse_json(data, "the index")
    shard_names(raw, "the index"), total_size(raw)


def _indices() -> list[dict[str, Any]]:
    names = {f"model.layers.{n}.mlp.up_proj.weight": f"model-0000{n + 1}-of-00002.safetensors" for n in range(2)}
    return [{"metadata": {"total_size": 123456}, "weight_map": names}]


def ask_gguf(data: bytes) -> None:
    """A GGUF file's model and its weights."""
    from vramcast.models.quantization import scheme_for, weight_bytes
    from vramcast.models.sources import gguf
    from vramcast.models.sources.described import from_gguf

    model = from_gguf(gguf.read_header(small.Bytes(data, "x.gguf")), name="x", where="x.gguf")
    weight_bytes(model, scheme_for(model))


def ask_snapshot(data: bytes) -> None:
    """A memory snapshot, replayed and reported."""
    from vramcast.tracing.snapshots.file import parse_snapshot
    from vramcast.tracing.snapshots.report import explain_snapshot

    str(explain_snapshot(parse_snapshot(data)))


def _training_trees() -> list[Any]:
    return [tree for text in seeds.emitted() if isinstance(tree := _parsed(text), dict)]


def _parsed(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def ask_training(text: str | bytes) -> None:
    """The training question that a file asks, and its answer."""
    from vramcast.asking.asked import answer_training
    from vramcast.asking.training import training_question

    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        Path(file.name).write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "replace"))
        answer_training(training_question(None, files=(file.name,), gpu="H100x8"))


@cache
def _training_texts() -> tuple[str, ...]:
    return (*seeds.emitted(), *seeds.texts_of("tests/reading/training/*.py", "tests/cli/test_train_files.py"))


def ask_launch(text: str) -> None:
    """What starts an engine, and its answer."""
    from vramcast.asking.asked import answer_serving
    from vramcast.asking.launched import Launched, question_of_launch
    from vramcast.asking.serving import serving_question
    from vramcast.reading.serving.files import read_serving_text

    for launch in read_serving_text(text).launches[:2]:
        answer_serving(question_of_launch(Launched(launch=launch), (), {}, {"gpu": "H100x8"}, serving_question))


@cache
def _messages() -> tuple[str, ...]:
    places = ("tests/reading/test_out_of_memory.py", "tests/reading/test_engine_messages.py", "tests/reading/test_stack.py")
    return seeds.texts_of(*places, "tests/against_vllm_messages/*.py")


def ask_message(text: str) -> None:
    """What a log says of memory, asked again."""
    from vramcast.asking.looking import explain_text

    str(explain_text(text))


def ask_training_log(text: str) -> None:
    """Figures of a training log."""
    from vramcast.reading.training_logs import read_training_log

    read_training_log(text)


def ask_topology(text: str) -> None:
    """A matrix of links: islands and groups."""
    from vramcast.hardware.topology import parse_topology

    topology = parse_topology(text)
    topology.islands(), topology.pairs(), topology.cpus


def ask_environment(text: str) -> None:
    """A machine's reports, and what doctor says of them."""
    from vramcast.planning.health import lines_of
    from vramcast.reading.environment_reports import read_environment

    lines_of(read_environment(text))


def ask_trace(data: bytes) -> None:
    """A profiler trace, reported."""
    from vramcast.profiling.files import read_stream
    from vramcast.profiling.report import report_of

    report_of(read_stream(io.BytesIO(data), data[:16]), file="trace.json")


def ask_row(row: Any) -> None:
    """Measured rows of a file, scored; a row that cannot be asked is listed with its reason."""
    from vramcast.truth.evaluation import evaluate

    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        Path(file.name).write_bytes(as_json(row) + b"\n")
        json.dumps(evaluate([Path(file.name)]).report())


def ask_requests(data: bytes) -> None:
    """A request log."""
    from vramcast.planning.under_load import read_requests

    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        Path(file.name).write_bytes(data)
        read_requests(file.name)


def ask_anything(data: bytes) -> None:
    """Whatever it is, as the page takes a dropped file."""
    from vramcast.language import language
    from vramcast.web.pasting import read_held

    read_held(data, name="dropped", gpu="H100", size=len(data), say=language("en"))


@cache
def _anything() -> tuple[str, ...]:
    return (*_messages(), *_training_texts(), *seeds.samples(), *_reports(), json.dumps(seeds.trace()), json.dumps(small.CONFIG))


@cache
def _reports() -> tuple[str, ...]:
    return seeds.texts_of(
        "tests/hardware/test_topology.py", "tests/reading/test_environment_reports.py", "tests/hardware/test_health.py"
    )


QUESTIONS = (
    {"model": "llama3.1:8b", "gpu": "4090", "context": "32k", "concurrency": "4", "engine": "vllm", "kv_dtype": "fp8", "tp": "1"},
    {
        "model": "Qwen/Qwen3-30B-A3B",
        "gpu": "H100x8",
        "engine": "sglang",
        "tp": "4",
        "ep": "4",
        "prompt": "2000",
        "output": "200",
        "rate": "2",
    },
    {
        "model": "google/gemma-3-27b-it-GGUF:Q4_K_M",
        "gpu": "3090",
        "engine": "llama.cpp",
        "flags": "-ngl 40 -ub 256",
        "context": "8k",
    },
)
TRAININGS = (
    {
        "model": "meta-llama/Llama-3.1-8B",
        "gpu": "H100x8",
        "fsdp": "2",
        "seq": "8k",
        "micro_batch": "1",
        "framework": "torchtitan",
    },
    {
        "model": "Qwen/Qwen2.5-7B",
        "gpu": "4090",
        "method": "qlora",
        "rank": "16",
        "targets": "all-linear",
        "seq": "2048",
        "optimizer": "adamw_8bit",
    },
)


def ask_serve(words: Any) -> None:
    """A visitor's serving question."""
    from vramcast.asking.asked import answer_serving
    from vramcast.asking.visitor import asked_by_visitor

    answer_serving(asked_by_visitor("serve", _as_words(words)))


def ask_train(words: Any) -> None:
    """A visitor's training question."""
    from vramcast.asking.asked import answer_training
    from vramcast.asking.visitor import asked_by_visitor

    answer_training(asked_by_visitor("train", _as_words(words)))


def _as_words(words: Any) -> dict[str, Any]:
    return {str(key): value for key, value in words.items()} if isinstance(words, dict) else {}


def ask_line(text: str) -> None:
    """A pasted engine line."""
    from vramcast.asking.asked import answer_serving
    from vramcast.asking.serving import serving_question

    try:
        words = shlex.split(text)[:40]
    except ValueError:
        return
    engine = "sglang" if "--mem-fraction-static" in words else "llama.cpp" if "-ngl" in words else "vllm"
    answer_serving(serving_question(words[0] if words else "", flags=tuple(words[1:]), engine=engine, gpu="H100x8"))


LINES = (
    "Qwen/Qwen2.5-7B-Instruct --max-model-len 32768 --tensor-parallel-size 2 --gpu-memory-utilization 0.9 --enforce-eager",
    "deepseek-ai/DeepSeek-V3 --tp 8 --mem-fraction-static 0.85 --enable-dp-attention --dp 8 --chunked-prefill-size 4096",
    "llama3.1:8b -ngl 99 -c 16384 -ub 512 -b 2048 -fa on --cache-type-k q8_0 --cache-type-v q8_0 -np 4",
    "openai/gpt-oss-120b --max-num-seqs 128 --max-num-batched-tokens 8192 --kv-cache-dtype fp8 --cpu-offload-gb 4",
    "Qwen/Qwen2.5-VL-7B-Instruct --speculative-method ngram --num-speculative-tokens 4 --limit-mm-per-prompt '{\"image\": 2}'",
)

TARGETS: dict[str, Target] = {
    "config": Target(_trees(_configs, as_json), ask_config),
    "quantization": Target(_trees(_quantised, as_json), ask_config),
    "safetensors": Target(_trees(_headers, _header), ask_safetensors),
    "index": Target(_trees(_indices, as_json), ask_index),
    "gguf": Target(_trees(lambda: [seeds.gguf_values()], seeds.gguf_of), ask_gguf),
    "snapshot": Target(_trees(lambda: [seeds.snapshot()], seeds.pickled), ask_snapshot),
    "training file": Target(_trees(_training_trees, as_json), ask_training),
    "training text": Target(_texts(_training_texts), ask_training),
    "launch": Target(_texts(seeds.samples), ask_launch),
    "engine line": Target(_texts(lambda: LINES), ask_line),
    "message": Target(_texts(_messages), ask_message),
    "training log": Target(_texts(lambda: seeds.texts_of("tests/reading/test_training_logs.py")), ask_training_log),
    "topology": Target(_texts(lambda: seeds.texts_of("tests/hardware/test_topology.py")), ask_topology),
    "environment": Target(_texts(lambda: seeds.texts_of("tests/reading/test_environment_reports.py")), ask_environment),
    "trace": Target(_trees(lambda: [seeds.trace()], as_json), ask_trace),
    "row": Target(_trees(seeds.rows), ask_row),
    "requests": Target(
        _trees(
            lambda: [{"arrival_s": 0.5, "prompt": 100, "output": 20, "cached": 10, "id": "a", "model": "b", "tenant": "c"}],
            as_json,
        ),
        ask_requests,
    ),
    "anything": Target(
        lambda chance: edited_text(chance, chance.choice(_anything()), _anything()).encode("utf-8", "replace"), ask_anything
    ),
    "serve": Target(_trees(lambda: QUESTIONS), ask_serve),
    "train": Target(_trees(lambda: TRAININGS), ask_train),
}
