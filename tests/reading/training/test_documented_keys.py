"""Every key that the formats' own documentation names as deciding memory is read, or said to have no effect."""

import pytest

from vramcast.reading.training.formats import rules_of

DEEPSPEED = [f"zero_optimization.{key}" for key in (
    "stage", "reduce_bucket_size", "allgather_bucket_size", "overlap_comm", "contiguous_gradients", "sub_group_size",
    "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold", "stage3_max_live_parameters",
    "stage3_max_reuse_distance", "stage3_gather_16bit_weights_on_model_save", "offload_optimizer.device",
    "offload_optimizer.buffer_count", "offload_optimizer.pin_memory", "offload_optimizer.ratio", "offload_param.device",
    "offload_param.buffer_count", "offload_param.buffer_size", "offload_param.max_in_cpu", "offload_param.pin_memory",
    "zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_gradients", "mics_shard_size",
)] + [
    "bf16.enabled", "fp16.enabled", "gradient_clipping", "data_types.grad_accum_dtype", "communication_data_type",
    "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "activation_checkpointing.cpu_checkpointing",
    "activation_checkpointing.partition_activations",
]  # fmt: skip
TRAINER = [
    "per_device_train_batch_size", "per_device_eval_batch_size", "eval_accumulation_steps", "gradient_accumulation_steps",
    "gradient_checkpointing", "activation_checkpointing", "gradient_checkpointing_kwargs.use_reentrant", "bf16", "fp16", "tf32",
    "bf16_full_eval", "optim", "torch_empty_cache_steps", "auto_find_batch_size", "use_liger_kernel", "fsdp",
    "fsdp_config.version", "fsdp_config.reshard_after_forward", "fsdp_config.cpu_offload", "fsdp_config.activation_checkpointing",
    "fsdp_config.state_dict_type", "deepspeed", "torch_compile", "neftune_noise_alpha", "dataloader_num_workers",
]  # fmt: skip
TRL = [
    "max_length", "packing", "packing_strategy", "padding_free", "activation_offloading", "lora_r", "lora_alpha", "lora_dropout",
    "bnb_4bit_quant_type", "load_in_4bit", "load_in_8bit", "precompute_ref_log_probs", "num_generations",
    "max_completion_length", "beta", "use_vllm", "vllm_mode", "vllm_gpu_memory_utilization", "vllm_tensor_parallel_size",
    "vllm_enable_sleep_mode", "loss_type", "model_init_kwargs.dtype",
]  # fmt: skip
ACCELERATE = [
    "distributed_type", "num_processes", "mixed_precision", "downcast_bf16", "deepspeed_config.zero_stage",
    "deepspeed_config.zero3_init_flag", "deepspeed_config.offload_optimizer_device", "deepspeed_config.offload_param_device",
    "deepspeed_config.deepspeed_config_file", "parallelism_config.parallelism_config_dp_shard_size",
    "parallelism_config.parallelism_config_tp_size", "megatron_lm_config.megatron_lm_tp_degree", "fp8_config.backend",
    *(f"fsdp_config.{mark}{key}" for mark in ("", "fsdp_") for key in (
        "auto_wrap_policy", "state_dict_type", "offload_params", "cpu_ram_efficient_loading", "version", "reshard_after_forward",
        "backward_prefetch", "sharding_strategy", "activation_checkpointing",
    )),
]  # fmt: skip
PEFT = [
    "r", "lora_alpha", "lora_dropout", "target_modules", "modules_to_save", "target_parameters", "use_dora",
    "trainable_token_indices", "ensure_weight_tying", "bias", "peft_type", "oft_block_size", "n_frequency", "num_virtual_tokens",
]  # fmt: skip
AXOLOTL = [
    "sequence_len", "micro_batch_size", "gradient_accumulation_steps", "sample_packing", "pad_to_sequence_len",
    "gradient_checkpointing", "activation_offloading", "optimizer", "bf16", "fp8", "load_in_4bit", "load_in_8bit", "adapter",
    "lora_r", "lora_target_modules", "lora_target_linear", "lora_modules_to_save", "lora_mlp_kernel", "lora_qkv_kernel",
    "lora_o_kernel", "embeddings_skip_upcast", "chunked_cross_entropy", "plugins", "deepspeed", "fsdp", "fsdp_config.version",
    "fsdp_version", "dp_shard_size", "tensor_parallel_size", "context_parallel_size", "gpu_memory_limit", "unfrozen_parameters",
    "excess_length_strategy", "layer_offloading", "tiled_mlp",
]  # fmt: skip
LLAMA_FACTORY = [
    "stage", "finetuning_type", "lora_rank", "lora_alpha", "lora_target", "cutoff_len", "packing", "neat_packing",
    "quantization_bit", "quantization_method", "quantization_type", "double_quantization", "pure_bf16", "upcast_layernorm",
    "flash_attn", "disable_gradient_checkpointing", "use_unsloth_gc", "enable_liger_kernel", "freeze_trainable_layers",
    "freeze_vision_tower", "use_galore", "use_apollo", "use_badam", "use_muon", "vllm_gpu_util", "vllm_maxlen",
    "sglang_mem_fraction", "deepspeed", "per_device_train_batch_size", "bf16",
]  # fmt: skip
TORCHTUNE = [
    "model._component_", "model.lora_rank", "model.lora_attn_modules", "model.apply_lora_to_mlp", "model.quantize_base", "dtype",
    "batch_size", "tokenizer.max_seq_len", "dataset.packed", "optimizer._component_", "optimizer_in_bwd",
    "enable_activation_checkpointing", "enable_activation_offloading", "loss._component_", "compile",
    "gradient_accumulation_steps", "fsdp_cpu_offload", "fsdp_reshard_after_forward", "custom_sharded_layers",
]  # fmt: skip
TORCHTITAN = [
    "training.local_batch_size", "training.global_batch_size", "training.seq_len", "training.dtype",
    "training.mixed_precision_param", "training.mixed_precision_reduce", "parallelism.data_parallel_replicate_degree",
    "parallelism.data_parallel_shard_degree", "parallelism.tensor_parallel_degree", "parallelism.pipeline_parallel_degree",
    "parallelism.context_parallel_degree", "parallelism.expert_parallel_degree", "parallelism.fsdp_reshard_after_forward",
    "parallelism.pipeline_parallel_schedule", "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option",
    "activation_checkpoint.memory_budget", "optimizer.name", "compile.components", "memory_estimation.enabled",
]  # fmt: skip
MEGATRON = [
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
    "sequence_parallel", "virtual_pipeline_model_parallel_size", "recompute_granularity", "recompute_method",
    "recompute_num_layers", "recompute_modules", "use_distributed_optimizer", "accumulate_allreduce_grads_in_fp32",
    "grad_reduce_in_fp32", "use_precision_aware_optimizer", "main_grads_dtype", "main_params_dtype", "exp_avg_dtype",
    "use_megatron_fsdp", "data_parallel_sharding_strategy", "micro_batch_size", "global_batch_size", "seq_length",
    "make_vocab_size_divisible_by", "cross_entropy_loss_fusion", "moe_router_topk", "moe_token_dispatcher_type",
    "optimizer_cpu_offload", "fp8", "cuda_graph_impl", "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads",
    "num_query_groups", "kv_channels", "swiglu", "untie_embeddings_and_output_weights", "bf16", "num_experts",
]  # fmt: skip
DOCUMENTED = {
    "deepspeed": DEEPSPEED, "huggingface": TRAINER + TRL, "accelerate": ACCELERATE, "peft_config": PEFT, "axolotl": AXOLOTL,
    "llama_factory": LLAMA_FACTORY, "torchtune": TORCHTUNE, "torchtitan": TORCHTITAN, "megatron": MEGATRON,
    "nemo": [f"model.{key}" for key in MEGATRON], "ms_swift": TRAINER,
}  # fmt: skip

UNRULED = ["tiled_mlp"]  # has an effect and no rule: the answer lists it as not modelled


@pytest.mark.parametrize("name", DOCUMENTED)
def test_documented_keys_are_read_or_said_to_have_no_effect(name: str) -> None:
    rules = rules_of(name)
    quiet = rules.IDLE

    def known(key: str) -> bool:
        return key in rules.RULES or key in quiet or any(w.endswith("*") and key.startswith(w[:-1]) for w in quiet)

    assert [key for key in DOCUMENTED[name] if not known(key)] == [key for key in DOCUMENTED[name] if key in UNRULED]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_no_key_is_both_read_and_idle(name: str) -> None:
    rules = rules_of(name)
    exact = {key for key in rules.IDLE if not key.endswith("*")}
    assert not exact & rules.RULES.keys()
