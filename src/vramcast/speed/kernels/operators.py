"""Every operator by name: seconds from constants, a machine and arguments, numbers or arrays; what fit and scoring evaluate."""

from collections.abc import Callable
from typing import Any

from vramcast.speed.kernels.attention import decode_parts, decode_seconds, prefill_parts, prefill_seconds
from vramcast.speed.kernels.collectives import collective_parts
from vramcast.speed.kernels.experts import exchange_parts
from vramcast.speed.kernels.gemm import elementwise_parts, gemm_parts, gemm_seconds
from vramcast.speed.kernels.latent import (
    mla_decode_parts,
    mla_prefill_parts,
    module_parts,
    module_seconds,
)
from vramcast.speed.kernels.machine import Machine
from vramcast.speed.kernels.moe import moe_parts, moe_seconds
from vramcast.speed.kernels.recurrent import convolution_parts, recurrent_parts, recurrent_seconds

Seconds = Callable[..., Any]


def seconds(operator: str, constants: dict[str, float], on: Machine, **arguments: Any) -> Any:
    """The law of this operator with these constants."""
    return OPERATORS[operator](constants, on, **arguments)


def _gemm(constants: dict[str, float], on: Machine, **arguments: Any) -> Any:
    return gemm_seconds(constants, gemm_parts(constants, on, **arguments))


def _decode(constants: dict[str, float], on: Machine, **arguments: Any) -> Any:
    return decode_seconds(constants, decode_parts(constants, on, **arguments))


def _prefill(constants: dict[str, float], on: Machine, **arguments: Any) -> Any:
    return prefill_seconds(constants, prefill_parts(constants, on, **arguments))


def _moe(constants: dict[str, float], on: Machine, **arguments: Any) -> Any:
    return moe_seconds(constants, moe_parts(constants, on, **arguments))


def _mla_decode(constants: dict[str, float], on: Machine, **arguments: Any) -> Any:
    return decode_seconds(constants, mla_decode_parts(constants, on, **arguments))


def _module(constants: dict[str, float], on: Machine, **arguments: Any) -> Any:
    return module_seconds(constants, module_parts(constants, on, **arguments))


def _recurrent(constants: dict[str, float], on: Machine, **arguments: Any) -> Any:
    return recurrent_seconds(constants, recurrent_parts(constants, on, **arguments))


def _convolution(constants: dict[str, float], on: Machine, **arguments: Any) -> Any:
    return recurrent_seconds(constants, convolution_parts(constants, on, **arguments))


def _summed(parts: Callable[..., dict[str, Any]]) -> Seconds:
    return lambda constants, on, **arguments: sum(parts(constants, on, **arguments).values())


OPERATORS: dict[str, Seconds] = {
    "gemm": _gemm,
    "decode_attention": _decode,
    "prefill_attention": _prefill,
    "moe": _moe,
    "mla_decode": _mla_decode,
    "mla_prefill": _summed(mla_prefill_parts),
    **{f"{kind}_module_{phase}": _module for kind in ("mla", "dsa", "csa") for phase in ("prefill", "decode")},
    **{f"recurrent_{phase}": _recurrent for phase in ("prefill", "decode")},
    **{f"convolution_{phase}": _convolution for phase in ("prefill", "decode")},
    "elementwise": _summed(elementwise_parts),
    **{name: _summed(collective_parts) for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")},
    **{name: _summed(exchange_parts) for name in ("dispatch", "combine")},
}
