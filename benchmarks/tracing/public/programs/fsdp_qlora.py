"""Answer.AI's fsdp_qlora: a frozen model on the host, 4-bit or bf16, LoRA beside its projections, FSDP1 layer by layer."""

import functools
from typing import Any

import torch
from bitsandbytes.functional import quantize_4bit
from bitsandbytes.nn import Linear4bit, Params4bit
from peft import LoraConfig, get_peft_model
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import _or_policy, lambda_auto_wrap_policy, transformer_auto_wrap_policy
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from public.programs.loading import load


def main(
    *,
    config: dict[str, Any],
    layers: int,
    quant: bool,
    sharded: bool,
    offload: bool,
    micro_batch: int,
    seq: int,
    lora: dict[str, Any],
) -> None:
    """Train on rows of one length until somebody stops it."""
    torch.distributed.init_process_group("nccl")
    model = get_peft_model(_on_host(config, layers, quant), LoraConfig(task_type="CAUSAL_LM", **lora))
    model = FullyShardedDataParallel(
        model,
        sharding_strategy=ShardingStrategy.FULL_SHARD if sharded else ShardingStrategy.NO_SHARD,
        auto_wrap_policy=functools.partial(_or_policy, policies=[_trained_leaves(), _layers()]),
        use_orig_params=False,
        cpu_offload=CPUOffload(offload_params=True) if offload else None,
        limit_all_gathers=True,
        device_id=torch.cuda.current_device(),
        sync_module_states=True,
    )
    model.enable_input_require_grads()
    apply_activation_checkpointing(
        model,
        checkpoint_wrapper_fn=functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT),
        check_fn=lambda module: isinstance(module, LlamaDecoderLayer),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.95), eps=1e-5, weight_decay=0.1)
    while True:
        ids = torch.zeros(micro_batch, seq, dtype=torch.long)
        output = model(ids.to("cuda"), labels=ids.to("cuda"), attention_mask=None)
        loss = output.loss
        loss.backward()
        loss.item()
        optimizer.step()
        optimizer.zero_grad()
        output = loss = None


def _layers() -> Any:
    return functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=(LlamaDecoderLayer,))


def _trained_leaves() -> Any:
    def trained(module: torch.nn.Module) -> bool:
        weight = getattr(module, "weight", None)
        return not list(module.children()) and weight is not None and weight.requires_grad

    return functools.partial(lambda_auto_wrap_policy, lambda_fn=trained)


def _on_host(config: dict[str, Any], layers: int, quant: bool) -> Any:
    """The model as rank 0 loads it: on the host, in 4 bits by way of the card, weight after weight."""
    model = load({**config, "use_cache": False}, layers=layers, torch_dtype=torch.bfloat16, attn_implementation="sdpa")
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if quant and isinstance(child, torch.nn.Linear) and name != "lm_head":
                setattr(module, name, _quantized(child))
    torch.cuda.empty_cache()
    if quant:
        model.is_loaded_in_4bit = True
    return model


def _quantized(linear: torch.nn.Linear) -> Linear4bit:
    stored: dict[str, Any] = {"compress_statistics": True, "quant_type": "nf4", "quant_storage": torch.bfloat16}
    layer = Linear4bit(linear.in_features, linear.out_features, bias=False, compute_dtype=torch.bfloat16, device="meta", **stored)
    packed, state = quantize_4bit(linear.weight.to("cuda"), blocksize=64, **stored)
    layer.weight = Params4bit(
        packed.to("cpu"), requires_grad=False, quant_state=state, bnb_quantized=True, module=layer, **stored
    )
    layer.quant_state = state
    return layer
