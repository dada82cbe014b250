"""Operations that DeepSpeed compiles when they are first asked for: they change tensors in place and return nothing.

Its fused optimizers hand lists of tensors to one kernel (deepspeed 0.19, ops/adam/fused_adam.py), as Triton's launches do.
"""

from typing import Any

from vramcast.tracing.execution.stand_ins.imported import when_imported


class Operations:
    """A compiled module of which every function does nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: 0


def install() -> None:
    """Let every builder of DeepSpeed give back operations that do nothing."""
    when_imported("deepspeed.ops.op_builder.builder", _patch)


def _patch(module: Any) -> None:
    module.OpBuilder.load = lambda *_, **__: Operations()
    module.OpBuilder.is_compatible = lambda *_, **__: True
