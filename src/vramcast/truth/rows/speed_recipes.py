"""What the public scripts of a row's source set and its table leaves out: limits, kernels, numbers kept in 8 bits, lengths.

Two campaigns stand in one table: InferenceX (SemiAnalysisAI/InferenceX, benchmarks/single_node, by engine), and the runs of
aiconfigurator's own generator (ai-dynamo/aiconfigurator, generator/rule_plugin/benchmark by engine, commit 71bb3d00e).
"""

from typing import Any

from vramcast.truth.rows import speed_words as words

Row = dict[str, Any]

SERVED = ("vllm", "sglang", "tensorrt_llm")
_SILICON = "silicon_sample"
_SPARE_TOKENS = 1500
"""Beside one prompt and a token of each sequence, what the generator leaves in a step (max_num_tokens, max_prefill_tokens)."""
_HELD_SEQS = 1
"""Sequences that TensorRT-LLM 1.0 runs below its max_batch_size. Inferred: TTFT grows with a (c - 1)th of a request's
whole time (8 to 128 clients); which part of the executor holds the slot was not found."""


def inference_x(row: Row) -> bool:
    """Whether the row is InferenceX's: its lengths are 1,024 and 8,192."""
    lengths = (row["settings"].get("isl"), row["settings"].get("osl"))
    return _SILICON in str(row.get("source")) and all(length in (1024, 8192) for length in lengths)


def generated(row: Row) -> bool:
    """Whether aiconfigurator's generator wrote the server's command: of SGLang since it writes them (0.5.6)."""
    if _SILICON not in str(row.get("source")) or inference_x(row) or row["settings"].get("mode") == "disagg":
        return False
    engine = words.engine(row)
    version = words.version(row, engine)
    return (engine == "tensorrt_llm" and (1,) <= version < (1, 1)) or (engine == "sglang" and version >= (0, 5, 6))


def drafted(row: Row) -> int:
    """Tokens that DeepSeek's own layer drafts each step in InferenceX's runs of TensorRT-LLM 1.2.0rc6.post3; 0 in all others.

    That image serves the MTP configurations alone, rc6.post2 those without (perf-changelog.yaml, pull 1488); three tokens, one
    under attention data parallelism (dsr1_fp8_b200_trt_mtp.sh, dsr1_fp4_b200_trt_mtp.sh).
    """
    if not inference_x(row) or not str(row.get("version")).startswith("1.2.0rc6.post3"):
        return 0
    return 1 if (row["settings"].get("attention_dp_size") or 1) > 1 else 3


def mixes_chunks(row: Row) -> bool:
    """Whether SGLang ran decodes beside prompts: the generator sets --enable-mixed-chunk."""
    return generated(row) and words.engine(row) == "sglang"


def recipe(row: Row, engine: str) -> dict[str, Any]:
    """Fields of the deployment that the source's scripts set beside the table."""
    clients = row["settings"].get("concurrency")
    found: dict[str, Any] = {"kv_dtype": cache_dtype(row, engine)}
    if generated(row) and isinstance(clients, int):
        return found | _limits(row, engine, clients)
    if not (inference_x(row) and isinstance(clients, int)):
        return found
    blackwell = str(row["gpu"]).startswith(("B2", "B3", "GB"))
    if engine == "sglang":
        polls = (30 if clients >= 16 else 10) if blackwell and "GLM" not in row["model_id"] else 0
        newer = str(row.get("version")).startswith("0.5.10") and row["settings"]["precision"] == "fp8"
        polls = 10 if polls and newer else polls
        found |= {"chunk_tokens": 16384, "poll_steps": polls, "max_seqs": max(128, clients)}
        found["state_bytes"] = 2.0
        found["pool_sequences"] = 0  # --disable-radix-cache: a state slot for each request, more than the clients
    if "gpt-oss" in row["model_id"] and engine == "vllm" and str(row["gpu"]).startswith("H100"):
        found["backends"] = {"moe": "vllm/marlin"}  # VLLM_MXFP4_USE_MARLIN=1
    if "MiniMax" in row["model_id"] and str(row["gpu"]).startswith("H100"):
        found["backends"] = {"qk_norm": "fused"}  # pass_config: fuse_minimax_qk_norm
    if tokens := drafted(row):
        seqs = max(1, clients // (row["settings"].get("attention_dp_size") or 1))
        found |= {"max_seqs": seqs, "chunk_tokens": (1 + tokens) * seqs + row["settings"]["isl"] + 64}
    if (
        "DeepSeek" in row["model_id"]
        and engine == "tensorrt_llm"
        and blackwell
        and (row["settings"].get("attention_dp_size") or 1) == 1
    ):
        found["first_steps"] = 8  # stream_interval 10: a first token is sent with the tenth
        # moe_config: backend TRTLLM, except with attention data parallelism; for fp8 since 1.2
        older = words.version(row, engine) < (1, 2)
        narrow = row["settings"]["precision"] == "fp4"
        found["backends"] = {"moe": "trtllm/min_latency" if narrow else "trtllm/deepgemm" if older else "sglang/trtllm_gen"}
    return found


def _limits(row: Row, engine: str, clients: int) -> dict[str, Any]:
    tokens = row["settings"]["isl"] + _SPARE_TOKENS
    if engine == "sglang":
        return {"chunk_tokens": tokens}
    return {"chunk_tokens": tokens + clients, "max_seqs": max(1, clients - _HELD_SEQS)}


def cache_dtype(row: Row, engine: str) -> str:
    """fp8 caches: in TensorRT-LLM with quantised weights, in SGLang's and vLLM's InferenceX scripts for Blackwell and fp8."""
    narrow = str(row["settings"].get("precision")).startswith(("fp8", "fp4", "nvfp4"))
    if "fp8 KV" in str(row["settings"].get("precision")) or str(row["settings"].get("kv_cache")) == "fp8":
        return "fp8"
    if not narrow or engine not in SERVED:
        return "bf16"
    if engine == "tensorrt_llm":
        return "fp8"
    blackwell = str(row["gpu"]).startswith(("B2", "B3", "GB"))
    return "fp8" if inference_x(row) and (blackwell or engine == "sglang") else "bf16"
