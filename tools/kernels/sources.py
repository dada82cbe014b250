"""Every file of the corpus as columns that a kind of table reads: joined words, melted pairs, layers turned into products."""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from corpus import Array, Columns, load, read
from fitting import Table

AIC = "aiconfigurator-core 0.12.0, Apache-2.0"
_PLAIN = (
    "gemm", "generation_attention", "context_attention", "moe", "nccl", "custom_allreduce", "linear_attention", "mla",
    "sparse_attention",
)  # fmt: skip


def tables(folder: Path, only: tuple[str, ...] = ()) -> Iterator[Table]:
    """Every table of the corpus that a law reads, or those of these kinds."""
    for kind in _PLAIN:
        if not only or kind in only:
            yield from read(load(folder / f"aiconfigurator/{kind}.parquet"), kind, AIC)
    for kind, columns, source in _others(folder):
        if not only or kind in only:
            yield from read(columns, kind, source)


def _others(folder: Path) -> Iterator[tuple[str, Columns, str]]:
    yield "gemm", load(folder / "aiconfigurator_0_4/gemm_weight_only.parquet"), "aiconfigurator 0.4.0, Apache-2.0"
    yield "moe", load(folder / "aiconfigurator_0_4/moe_w4.parquet"), "aiconfigurator 0.4.0, Apache-2.0"
    yield "gemm", load(folder / "aiter/gemm.parquet"), "ROCm/aiter@e404860, MIT"
    yield "moe", _aiter_experts(load(folder / "aiter/moe.parquet")), "ROCm/aiter@e404860, MIT"
    yield "gated_delta_decode", load(folder / "aiter/gated_delta_decode.parquet"), "ROCm/aiter@e404860, MIT"
    yield "gemm", _neusight(load(folder / "neusight/gemm_fp32.parquet")), "sitar-lab/NeuSight@6945927, MIT"
    yield "elementwise_fp32", load(folder / "neusight/elementwise_fp32.parquet"), "sitar-lab/NeuSight@6945927, MIT"
    yield "gemm", _dense(folder / "llmservingsim"), "casys-kaist/LLMServingSim@5daddb2, MIT"
    yield "gemm", _older(folder / "llmservingsim"), "casys-kaist/LLMServingSim@5daddb2, MIT"
    yield "pointwise", _small(folder / "llmservingsim"), "casys-kaist/LLMServingSim@5daddb2, MIT"
    yield "pointwise", _vidur(folder / "vidur/mlp.parquet"), "microsoft/vidur@7d47513, MIT"
    yield "pointwise", _quantised(folder / "aiconfigurator/quantize.parquet"), AIC
    steps = _of(load(folder / "llmservingsim/attention.parquet"), "RTX4090")
    yield "context_attention", _alone(steps, "prefill_chunk", "n_decode"), "casys-kaist/LLMServingSim@5daddb2, MIT"
    yield "generation_attention", _alone(steps, "n_decode", "prefill_chunk"), "casys-kaist/LLMServingSim@5daddb2, MIT"
    yield "gemm", _h20(folder / "infersim/gemm.csv"), "alibaba/InferSim@f2293da, Apache-2.0"
    for columns in _exchanges(folder / "aiconfigurator"):
        yield "exchange", columns, AIC


# Activation and weight formats of tuned expert layers -> the words of the other tables.
_AITER_EXPERTS = {
    ("bfloat16", "bfloat16"): "bfloat16", ("float8_e4m3fn", "float8_e4m3fn"): "fp8_block",
    ("float8_e4m3fnuz", "float8_e4m3fnuz"): "fp8_block", ("bfloat16", "float4_e2m1fn_x2"): "w4a16_mxfp4",
    ("float8_e4m3fn", "float4_e2m1fn_x2"): "w4a8_mxfp4_mxfp8", ("float4_e2m1fn_x2", "float4_e2m1fn_x2"): "mxfp4",
}  # fmt: skip


def _aiter_experts(rows: Columns) -> Columns:
    formats = [_AITER_EXPERTS.get(pair, "other") for pair in zip(rows["a_dtype"], rows["w_dtype"], strict=True)]
    one = np.ones(len(formats))
    return {
        "card": rows["card"], "engine": _word(rows, "aiter"), "kernel": _word(rows, "tuned"),
        "dtype": np.array(formats, dtype=object), "distribution": _word(rows, "uniform"), "moe_tp": one, "moe_ep": one,
        **{name: rows[name] for name in ("tokens", "hidden", "inter", "experts", "topk", "us")},
    }  # fmt: skip


def _neusight(rows: Columns) -> Columns:
    kept = {name: column[rows["op"] == "linear"] for name, column in rows.items()}
    return {
        "card": kept["card"], "engine": _word(kept, "eager"), "kernel": _word(kept, "torch"), "dtype": _word(kept, "fp32"),
        "m": kept["B"] * kept["M"], "n": kept["N"], "k": kept["K"], "us": kept["us"],
    }  # fmt: skip


# hidden, query heads x width, KV heads x width, inter of the models profiled (their config.json).
_MODELS = {
    "meta-llama/Llama-3.1-8B": (4096, 4096, 1024, 14336),
    "Qwen/Qwen3-32B": (5120, 8192, 1024, 25600),
    "Qwen/Qwen3-30B-A3B-Instruct-2507": (2048, 4096, 512, 0),
    "meta-llama/Llama-3.1-70B": (8192, 8192, 1024, 28672),
    "mistralai/Mixtral-8x7B-v0.1": (4096, 4096, 1024, 0),
    "microsoft/Phi-mini-MoE-instruct": (4096, 4096, 1024, 0),
}


def _dense(folder: Path) -> Columns:
    rows = load(folder / "dense.parquet")
    hidden, query, key, inter = _widths(rows)
    tp = rows["tp"]
    shapes = {
        "qkv_proj": ((query + 2 * key) / tp, hidden), "o_proj": (hidden, query / tp),
        "gate_up_proj": (2 * inter / tp, hidden), "down_proj": (hidden, inter / tp),
    }  # fmt: skip
    return _joined([_layer(rows, layer, n, k) for layer, (n, k) in shapes.items()])


def _layer(rows: Columns, layer: str, n: Array, k: Array) -> Columns:
    chosen = (rows["layer"] == layer) & (n > 0) & (k > 0)
    kept = {name: column[chosen] for name, column in rows.items()}
    return {
        "card": kept["card"], "engine": _word(kept, "vllm"), "kernel": _word(kept, "torch"), "dtype": _word(kept, "bf16"),
        "m": kept["tokens"], "n": n[chosen], "k": k[chosen], "us": kept["us"],
    }  # fmt: skip


def _alone(rows: Columns, some: str, none: str) -> Columns:
    """Steps of Llama-3.1-8B that only prefill one sequence, or only decode, as attention calls of FlashAttention 2."""
    chosen = (rows[some] > 0) & (rows[none] == 0)
    kept = {name: column[chosen] for name, column in rows.items()}
    decodes = some == "n_decode"
    same = dict.fromkeys(("head_dim",), np.full(chosen.sum(), 128.0)) | {"window_size": np.zeros(chosen.sum())}
    return same | {
        "card": kept["card"], "engine": _word(kept, "vllm"), "kernel": _word(kept, "vllm_flash_attn_fa2"),
        "dtype": _word(kept, "bfloat16"), "kv_dtype": _word(kept, "bfloat16"), "heads": 32 / kept["tp"],
        "kv_heads": 8 / kept["tp"],
        "batch": kept["n_decode"] if decodes else np.ones(chosen.sum()), "isl": kept["prefill_chunk"],
        "past": kept["kv_decode"] if decodes else kept["kv_prefill"], "us": kept["us"],
    }  # fmt: skip


def _older(folder: Path) -> Columns:
    """Products of the A6000, one projection a row (the H100's are measured more fully elsewhere)."""
    rows = _of(load(folder / "layers_v0.parquet"), "A6000")
    hidden, query, _, inter = _widths(rows)
    shapes = {
        "q_proj": (query / rows["tp"], hidden), "o_proj": (hidden, query / rows["tp"]), "gate_proj": (inter / rows["tp"], hidden),
        "up_proj": (inter / rows["tp"], hidden), "down_proj": (hidden, inter / rows["tp"]),
    }  # fmt: skip
    rows["layer"] = rows["op"]
    return _joined([_layer(rows, layer, n, k) for layer, (n, k) in shapes.items()])


def _small(folder: Path) -> Columns:
    """Norms, activations and rotary embeddings inside a captured step, with the bytes that each moves in 16 bits."""
    return _moved(load(folder / "dense.parquet"))


def _vidur(path: Path) -> Columns:
    """Device times of the small operators of a layer."""
    rows = load(path)
    hidden, inter, tp = rows["n_embd"], rows["n_expanded_embd"], rows["tp"]
    per_token = np.select(
        [rows["op"] == "add", rows["op"] == "mlp_act", rows["op"] == "input_layernorm"],
        [6 * hidden, 6 * inter / tp, 4 * hidden],
        0.0,
    )
    chosen = per_token > 0
    return _pointwise(rows, chosen, rows["op"] == "input_layernorm", rows["tokens"] * per_token)


def _quantised(path: Path) -> Columns:
    """Quantisation of activations to fp8: two bytes read and one written an element."""
    rows = load(path)
    chosen = np.isin(rows["kernel"], ["torch_ops", "static_scaled_fp8_quant"]) & (rows["op"] == "scale_matrix")
    return _pointwise(rows, chosen, np.zeros(len(chosen), dtype=bool), 3 * rows["m"] * rows["k"])


def _pointwise(rows: Columns, chosen: Array, norm: Array, moved_bytes: Array) -> Columns:
    moves = np.where(norm, "norm", "add").astype(object)
    return {"card": rows["card"][chosen], "moves": moves[chosen], "moved_bytes": moved_bytes[chosen], "us": rows["us"][chosen]}


_NORMS = ("layernorm", "final_layernorm")


def _moved(rows: Columns) -> Columns:
    hidden, query, key, inter = _widths(rows)
    layer, tokens, tp = rows["layer"], rows["tokens"], rows["tp"]
    per_token = np.select(
        [np.isin(layer, _NORMS), layer == "act_fn", layer == "rotary_emb"],
        [8 * hidden, 6 * inter / tp, 4 * (query + key) / tp], 0.0,
    )  # fmt: skip
    return _pointwise(rows, per_token > 0, np.isin(layer, _NORMS), tokens * per_token)


def _widths(rows: Columns) -> list[Array]:
    return [np.array([_MODELS[name][i] for name in rows["model"]], dtype=float) for i in range(4)]


def _of(rows: Columns, card: str) -> Columns:
    chosen = rows["card"] == card
    return {name: column[chosen] for name, column in rows.items()}


def _joined(parts: list[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _h20(path: Path) -> Columns:
    rows = list(csv.DictReader(path.open()))
    columns: Columns = {name: np.array([float(row[name]) for row in rows]) for name in ("m", "n", "k", "us")}
    peak = 2 * columns["m"] * columns["n"] * columns["k"] / columns["us"] / 1e6 / np.array([float(row["mfu"]) for row in rows])
    columns["card"] = np.array([row["card"] for row in rows], dtype=object)
    columns["dtype"] = np.where(peak > 200, "fp8_block", "bf16").astype(object)
    columns["engine"] = np.where(peak > 200, "sglang", "vllm").astype(object)
    columns["kernel"] = np.where(peak > 200, "deepgemm", "torch").astype(object)
    return columns


def _exchanges(folder: Path) -> Iterator[Columns]:
    """Dispatch and combine of DeepEP, one row each, with the ranks of the group and the bytes of an element."""
    normal = load(folder / "deepep_normal.parquet")
    for operation, element in (("dispatch", 1), ("combine", 2)):
        us = normal[f"{operation}_transmit_us"] + normal[f"{operation}_notify_us"]
        chosen = normal[f"{operation}_sms"] >= 20
        yield _exchange_rows(normal, chosen, us, operation=operation, implementation="high_throughput", element=element)
    low = load(folder / "deepep_low_latency.parquet")
    for operation, element in (("dispatch", 1), ("combine", 2)):
        us = low[f"{operation}_avg_t_us"]
        yield _exchange_rows(low, us > 0, us, operation=operation, implementation="low_latency", element=element)


def _exchange_rows(rows: Columns, chosen: Array, us: Array, *, operation: str, implementation: str, element: int) -> Columns:
    kept = {name: column[chosen] for name, column in rows.items()}
    per_node = np.where(kept["card"] == "gb200", 4, 8)
    return {
        "card": kept["card"], "operation": _word(kept, operation), "implementation": _word(kept, implementation),
        "nodes": kept["node_num"].astype(int).astype(str).astype(object), "element_bytes": _word(kept, str(element)),
        "tokens": kept["tokens"], "hidden": kept["hidden"], "topk": kept["topk"], "ep": kept["node_num"] * per_node,
        "us": us[chosen],
    }  # fmt: skip


def _word(rows: Columns, word: str) -> Array:
    return np.full(len(next(iter(rows.values()))), word, dtype=object)
