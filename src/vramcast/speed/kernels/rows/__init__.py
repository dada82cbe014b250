"""Measured kernel rows in the columns of public tables -> calls of the laws: operator, back end, format and arguments.

One function per kind of table reads its word columns (engine, kernel, dtype) once per group of rows and its number columns as
numbers or arrays. A row that no law covers gives None, with no guess.
"""

from vramcast.speed.kernels.rows.attention import decode_row, prefill_row
from vramcast.speed.kernels.rows.base import Call, Kind, card_of
from vramcast.speed.kernels.rows.exchange import exchange_row, nccl_row, own_all_reduce_row
from vramcast.speed.kernels.rows.latent import latent_row, sparse_row
from vramcast.speed.kernels.rows.mixers import elementwise_row, gated_delta_row, pointwise_row, recurrent_row
from vramcast.speed.kernels.rows.products import expert_row, gemm_row

__all__ = ["KINDS", "Call", "Kind", "card_of"]

KINDS = {
    "gemm": Kind(needs=frozenset({"m", "n", "k", "dtype"}), words=("card", "engine", "kernel", "dtype", "lib"), read=gemm_row),
    "generation_attention": Kind(
        needs=frozenset({"batch", "past", "heads", "kv_heads", "window_size", "kv_dtype", "kernel"}),
        words=("card", "engine", "kernel", "kv_dtype"),
        read=decode_row,
    ),
    "context_attention": Kind(
        needs=frozenset({"batch", "isl", "past", "heads", "kv_heads", "window_size", "kv_dtype", "kernel"}),
        words=("card", "engine", "kernel", "dtype", "kv_dtype"),
        read=prefill_row,
    ),
    "moe": Kind(
        needs=frozenset({"tokens", "hidden", "inter", "topk", "experts", "moe_tp", "moe_ep", "distribution"}),
        words=("card", "engine", "kernel", "dtype", "distribution"),
        read=expert_row,
    ),
    "nccl": Kind(
        needs=frozenset({"kernel", "op", "dtype", "num_gpus", "count"}),
        words=("card", "kernel", "op", "dtype", "num_gpus"),
        read=nccl_row,
    ),
    "custom_allreduce": Kind(
        needs=frozenset({"kernel", "dtype", "num_gpus", "count"}),
        words=("card", "kernel", "dtype", "num_gpus"),
        read=own_all_reduce_row,
    ),
    "linear_attention": Kind(
        needs=frozenset({"phase", "seq_len", "k_heads", "v_heads", "head_k_dim", "head_v_dim", "op"}),
        words=("card", "engine", "kernel", "op", "phase", "model"),
        read=recurrent_row,
    ),
    "gated_delta_decode": Kind(
        needs=frozenset({"num_k_heads", "num_v_heads", "state_dtype"}),
        words=("card", "dtype", "state_dtype"),
        read=gated_delta_row,
    ),
    "sparse_attention": Kind(
        needs=frozenset({"op", "model", "compress_ratio", "gemm_type", "isl", "past"}),
        words=("card", "engine", "kernel", "op", "model", "dtype", "kv_dtype", "gemm_type"),
        read=sparse_row,
    ),
    "mla": Kind(
        needs=frozenset({"op", "gemm_type", "isl", "past", "tp_size"}),
        words=("card", "engine", "kernel", "op", "dtype", "kv_dtype", "gemm_type"),
        read=latent_row,
    ),
    "exchange": Kind(
        needs=frozenset({"operation", "implementation", "tokens", "hidden", "topk", "ep", "nodes", "element_bytes"}),
        words=("card", "operation", "implementation", "nodes", "element_bytes"),
        read=exchange_row,
    ),
    "pointwise": Kind(needs=frozenset({"moves", "moved_bytes"}), words=("card", "moves"), read=pointwise_row),
    "elementwise_fp32": Kind(needs=frozenset({"op", "B", "H"}), words=("card", "op"), read=elementwise_row),
}
