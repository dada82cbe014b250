"""Laws of single kernels: each a pure function of numbers or arrays to seconds, with few constants per back end and card class.

An ``Estimate`` has the seconds, the parts that could bind, the law with its error, and the formula with its numbers (``why``).
Constants are fitted from measured kernels by ``tools/fit_kernels.py`` and kept in ``laws.json`` with n and errors beside them.
"""

from vramcast.speed.kernels.attention import decode_attention, prefill_attention
from vramcast.speed.kernels.collectives import Fabric, all_gather, all_reduce, all_to_all, reduce_scatter
from vramcast.speed.kernels.experts import combine, dispatch
from vramcast.speed.kernels.gemm import elementwise, gemm
from vramcast.speed.kernels.latent import Latent, latent_module, mla_decode, mla_prefill, sparse_attention
from vramcast.speed.kernels.law import Estimate, Law, Spread, law_for, laws
from vramcast.speed.kernels.machine import Backend, backend, card_class
from vramcast.speed.kernels.moe import moe
from vramcast.speed.kernels.recurrent import convolution, recurrent

__all__ = [
    "Backend",
    "Estimate",
    "Fabric",
    "Latent",
    "Law",
    "Spread",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "backend",
    "card_class",
    "combine",
    "convolution",
    "decode_attention",
    "dispatch",
    "elementwise",
    "gemm",
    "latent_module",
    "law_for",
    "laws",
    "mla_decode",
    "mla_prefill",
    "moe",
    "prefill_attention",
    "recurrent",
    "reduce_scatter",
    "sparse_attention",
]
