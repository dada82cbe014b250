"""What is alive at one moment of a training step beside what stays from step to step, and where each term's rule was read."""

import msgspec

from vramcast.quantity import Number, Quantity
from vramcast.training.states import NOTHING

SOURCES = {
    "weights": "models/inventory: exact tensors; PEFT and bitsandbytes for what is frozen or quantised",
    "gradients": "torch autograd; ZeRO, arXiv 1910.02054, table 1",
    "activations": "torch/csrc/autograd: what each operation saves",
    "loss": "the framework's loss function",
    "gathered": "torch 2.13, distributed/fsdp; DeepSpeed 0.18, runtime/zero/partition_parameters.py",
    "gathered_ahead": "torch 2.13, distributed/fsdp/_fully_shard/_fsdp_param_group.py",
    "temporaries": "torch/csrc/autograd/engine.cpp: order and life of gradients",
    "gradient_copy": "DeepSpeed 0.6.0, runtime/zero/stage_1_and_2.py: step, get_grad_norm_direct; bf16_optimizer.py",
    "secondary_weights": "DeepSpeed 0.18, runtime/zero/partition_parameters.py: _partition_param_sec; arXiv 2306.10209",
    "overflow_check": "DeepSpeed 0.6.0, runtime/zero/stage_1_and_2.py: _has_inf_or_nan",
    "communication": "DeepSpeed 0.6.0, runtime/zero/constants.py (buckets of 5e8); torch 2.13, nn/parallel/distributed.py",
}
"""Where each term's rule was read."""


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """What is alive at one moment beside what stays from step to step.

    ``gradients``: None where they are those that the micro-batch began with. ``activations`` of the decoder's layers and
    ``tower``: bytes that wait for backward. ``ahead``: in a buffer from which the next unit will be whole. ``source``: of the
    temporaries' rule, where they are not a layer's.
    ``between_steps``: no step is under way.
    """

    between_steps: bool = False
    gradients: Quantity | None = None
    activations: Number = 0.0
    tower: Number = 0.0
    loss: Quantity = NOTHING
    gathered: Quantity = NOTHING
    ahead: Quantity = NOTHING
    temporaries: Quantity = NOTHING
    gradient_copy: Quantity = NOTHING
    overflow_check: Quantity = NOTHING
    source: str = SOURCES["temporaries"]
