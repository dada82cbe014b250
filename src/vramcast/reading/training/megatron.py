"""Megatron-LM flags, of a script or a YAML of arguments; the model's shape is among them.

Source: megatron-core 0.14.0, core/transformer/transformer_config.py, core/model_parallel_config.py,
core/optimizer/optimizer_config.py, core/distributed/distributed_data_parallel_config.py (fields and defaults; the flags are
their names).
"""

from typing import Any

from vramcast.reading.training.keys import Rule, dtype, flag, names, number, one_of, text, when, whole
from vramcast.reading.training.settings import UNSET, Settings
from vramcast.training.frameworks.megatron import GRAPHED_PARTS, graphed_share
from vramcast.training.stage_layouts import chunks_of, counted_ends, uneven_layout

NAME = "Megatron-LM arguments"
SIGNATURE = frozenset(
    {"num_layers", "hidden_size", "tensor_model_parallel_size", "micro_batch_size", "seq_length", "num_attention_heads"}
)


def _fp8(settings: Settings, value: Any, because: str) -> None:
    if value not in UNSET:
        settings.put("compute_dtype", "fp8", because)


def _precision(settings: Settings, value: Any, because: str) -> None:
    """NeMo's names: bf16-mixed, bf16_with_fp8_..., 32."""
    word = str(value)
    if word in ("32", "32-true", "fp32", "float32"):
        settings.put("compute_dtype", "float32", because)
    elif word not in UNSET:
        settings.put("compute_dtype", "fp8" if "fp8" in word else "bfloat16" if "bf16" in word else "float16", because)


def _modules(settings: Settings, value: Any, because: str) -> None:
    listed = value if isinstance(value, list) else str(value).replace(",", " ").split()
    settings.put("recompute.modules", "+".join(map(str, listed)), because)


def _offload_modules(settings: Settings, value: Any, because: str) -> None:
    listed = value if isinstance(value, list) else str(value).replace(",", " ").strip("[]").split()
    settings.put("options.offload_modules", tuple(map(str, listed)), because)


def _parts(value: Any) -> tuple[str, ...] | None:
    listed = value if isinstance(value, list) else str(value).replace(",", " ").strip("[]").split()
    return tuple(str(part).strip("'\"") for part in listed) or None


def _offload(settings: Settings, value: Any, because: str) -> None:
    if flag(value):
        settings.add("offload", "optimizer", because)


def _decoder(settings: Settings, value: Any, because: str) -> None:
    """The language model's own length, where --seq-length is its vision encoder's."""
    settings.replace("seq", whole(value), because)


def _accumulation(settings: Settings, value: Any, because: str) -> None:
    """Without the fusion autograd makes each weight's gradient anew, and nothing stays in its place."""
    if not flag(value):
        settings.put("options.placeholders", False, because)


def _grouped(settings: Settings, value: Any, _because: str) -> None:
    if not flag(value):
        settings.drop("shape.kv_heads")


RULES: dict[str, Rule] = {
    "num_layers": ("shape.layers", whole),
    "hidden_size": ("shape.hidden", whole),
    "ffn_hidden_size": ("shape.ffn", whole),
    "num_attention_heads": ("shape.heads", whole),
    "num_query_groups": ("shape.kv_heads", whole),
    "group_query_attention": _grouped,
    "kv_channels": ("shape.head_dim", whole),
    "vocab_size": ("shape.vocab", whole),
    "padded_vocab_size": ("shape.vocab", whole),
    "max_position_embeddings": ("shape.positions", whole),
    "num_experts": ("shape.experts", whole),
    "num_moe_experts": ("shape.experts", whole),
    "moe_router_topk": ("shape.active", whole),
    "moe_ffn_hidden_size": ("shape.expert_ffn", whole),
    "moe_shared_expert_intermediate_size": ("shape.shared_ffn", whole),
    "swiglu": ("shape.gated", flag),
    "gated_linear_unit": ("shape.gated", flag),
    "qk_layernorm": ("shape.qk_norm", flag),
    "untie_embeddings_and_output_weights": ("shape.untied", flag),
    "share_embeddings_and_output_weights": ("shape.tied", flag),
    "normalization": ("shape.norm", lambda v: str(v).lower()),
    "disable_bias_linear": ("shape.unbiased", flag),
    "add_bias_linear": ("shape.bias", flag),
    "add_qkv_bias": ("shape.qkv_bias", flag),
    "position_embedding_type": ("shape.position", one_of({"learned_absolute": "learned", "rope": "rope", "none": "alibi"})),
    "decoder_seq_length": _decoder,
    "encoder_seq_length": ("seq", whole),
    "seq_length": ("seq", whole),
    "micro_batch_size": ("micro_batch", whole),
    "global_batch_size": ("global_batch", whole),
    "tensor_model_parallel_size": ("parallel.tp", whole),
    "pipeline_model_parallel_size": ("parallel.pp", whole),
    "context_parallel_size": ("parallel.cp", whole),
    "expert_model_parallel_size": ("parallel.ep", whole),
    "expert_tensor_parallel_size": ("options.expert_tp", whole),
    "virtual_pipeline_model_parallel_size": ("parallel.vpp", whole),
    "num_layers_per_virtual_pipeline_stage": ("virtual.layers", whole),
    "num_virtual_stages_per_pipeline_rank": ("parallel.vpp", whole),
    "pipeline_model_parallel_layout": ("options.stage_layout", text),
    "decoder_first_pipeline_num_layers": ("ends.first", whole),
    "decoder_last_pipeline_num_layers": ("ends.last", whole),
    "num_layers_in_first_pipeline_stage": ("ends.first", whole),
    "num_layers_in_last_pipeline_stage": ("ends.last", whole),
    "account_for_embedding_in_pipeline_split": ("ends.embedding", flag),
    "account_for_loss_in_pipeline_split": ("ends.loss", flag),
    "cp_comm_type": ("options.cp_comm", lambda v: "a2a" if "a2a" in str(v) else "p2p"),
    "sequence_parallel": ("parallel.sp", flag),
    "microbatch_group_size_per_virtual_pipeline_stage": ("options.microbatch_group", whole),
    "overlap_moe_expert_parallel_comm": ("options.overlaps_experts", flag),
    "tp_comm_overlap": ("options.overlaps_tensor", flag),
    "moe_token_dispatcher_type": ("experts.dispatcher", text),
    "moe_enable_deepep": ("experts.deepep", flag),
    "moe_pad_expert_input_to_capacity": ("experts.padded", flag),
    "moe_expert_capacity_factor": ("experts.capacity", number),
    "cuda_graph_impl": ("graphs.by", lambda value: None if str(value) == "none" else str(value)),
    "enable_cuda_graph": ("graphs.by", when("local")),
    "external_cuda_graph": ("graphs.by", when("transformer_engine")),
    "cuda_graph_modules": ("graphs.modules", _parts),
    "cuda_graph_scope": ("graphs.modules", _parts),
    "recompute_granularity": ("recompute.granularity", text),
    "recompute_method": ("recompute.method", text),
    "recompute_num_layers": ("recompute.layers", whole),
    "activations_checkpoint_granularity": ("recompute.granularity", text),  # NeMo 1's names
    "activations_checkpoint_method": ("recompute.method", text),
    "activations_checkpoint_num_layers": ("recompute.layers", whole),
    "offload_modules": _offload_modules,
    "recompute_modules": _modules,
    "recompute_activations": ("recompute.granularity", when("selective")),
    "checkpoint_activations": ("recompute.granularity", when("full")),
    "use_distributed_optimizer": ("optimizer.distributed", flag),
    "use_megatron_fsdp": ("fsdp", when(2)),
    "use_custom_fsdp": ("fsdp", when(2)),
    "use_torch_fsdp2": ("fsdp", when(2)),
    "data_parallel_sharding_strategy": ("fsdp.strategy", text),
    "num_distributed_optimizer_instances": ("parallel.replicate", whole),
    "accumulate_allreduce_grads_in_fp32": ("gradients.wide", flag),
    "grad_reduce_in_fp32": ("gradients.wide", flag),
    "grad_reduce_in_bf16": ("gradients.narrow", flag),
    "use_precision_aware_optimizer": ("optimizer.aware", flag),
    "main_grads_dtype": ("aware.gradients", dtype),
    "main_params_dtype": ("aware.master", dtype),
    "exp_avg_dtype": ("aware.states", dtype),
    "optimizer": ("optimizer", lambda v: {"adam": "adamw", "sgd": "sgd_momentum"}.get(str(v).lower(), str(v).lower())),
    "optimizer_cpu_offload": _offload,
    "bf16": ("compute_dtype", when("bfloat16")),
    "fp16": ("compute_dtype", when("float16")),
    "fp8": _fp8,
    "fp8_format": _fp8,
    "precision": _precision,
    "mixed_precision": _precision,
    "params_dtype": ("compute_dtype", dtype),
    "attention_dropout": ("options.attention_dropout", number),
    "hidden_dropout": ("options.hidden_dropout", number),
    "attention_backend": ("attention", one_of({"fused": "flash", "auto": None, "unfused": "unfused", "local": "unfused"})),
    "use_flash_attn": ("attention", when("flash")),
    "cross_entropy_loss_fusion": ("loss.fused", flag),
    "cross_entropy_fusion_impl": ("loss.by", text),
    "gradient_accumulation_fusion": _accumulation,
    "no_gradient_accumulation_fusion": lambda settings, value, because: _accumulation(settings, not flag(value), because),
    "make_vocab_size_divisible_by": ("options.pad_vocab_to", whole),
    "mtp_num_layers": ("shape.mtp", whole),
    # Megatron-SWIFT
    "model": ("model", text),
    "train_type": ("method", text),
    "tuner_type": ("method", text),
    "lora_rank": ("adapter.rank", whole),
    "target_modules": ("adapter.targets", names),
    "max_length": ("seq", whole),
    "padding_free": ("lengths.packed", flag),
    "packing": ("lengths.packed", flag),
}
IDLE = (
    "train_iters", "train_samples", "lr*", "min_lr*", "weight_decay*", "clip_grad", "adam_*", "init_method_std", "seed",
    "data_*", "split", "tokenizer_*", "vocab_file", "merge_file", "save*", "load*", "log_*", "eval_*", "tensorboard_*",
    "wandb_*", "distributed_*", "nproc_*", "nnodes", "node_rank", "master_*", "num_workers", "rotary_*",
    "use_rotary_position_embeddings", "use_mcore_models", "transformer_impl", "overlap_*", "no_*", "manual_gc*",
    "empty_unused_memory_level", "exit_*", "ckpt_*", "profile*", "timing_*", "mock_data", "norm_epsilon",
    "moe_router_load_balancing_type", "moe_aux_loss_coeff", "moe_grouped_gemm",
    "moe_permute_fusion", "moe_router_*", "moe_z_loss_coeff", "moe_per_layer_logging", "moe_flex_*",
    "moe_layer_freq", "calculate_*", "fp8_*", "te_rng_tracker", "tp_comm_*", "ddp_*", "decoupled_*",
    "apply_layernorm_1p", "attention_softmax_in_fp32", "masked_softmax_fusion", "bias_*", "apply_rope_fusion",
    "finetune", "dataloader_type", "rampup_*", "exp_avg_sq_dtype", "check_*", "reset_*",
    "eod_*", "override_*", "async_*", "auto_*", "tiktoken_*", "squared_relu", "dist_ckpt_*", "use_dist_ckpt*",
    "create_attention_mask*", "deterministic_mode", "num_floating_point_operations", "legacy_*", "app_*", "rdzv_*", "enable_*",
    "microbatch_*", "recompute_*", "cuda_graph*", "external_*", "gc_*", "nccl_*", "use_cpu_initialization",
    "fine_grained_activation_offloading", "start_weight_decay", "end_weight_decay", "inference_*", "cpu_offloading*",
    "tqdm", "ema*",
    "use_checkpoint_*", "apply_query_key_layer_scaling", "layernorm_epsilon", "layernorm_zero_centered_gamma", "pre_process",
    "post_process", "persist_layer_norm", "headscale", "transformer_block_type", "normalize_attention_scores", "attention_type",
    "native_amp_*", "hysteresis", "grad_allreduce_chunk_size_mb", "grad_div_ar_fusion", "onnx_safe", "apex_*", "gradient_as_*",
    "sync_batch_comm", "batch_p2p_comm", "sharp", "mcore_gpt", "ub_tp_*", "nsys_profile*", "use_scaled_init_method",
    "do_layer_norm_weight_decay", "megatron_amp_O2", "use_te", "transformer_engine", "resume_from_checkpoint", "load",
)  # fmt: skip


def finish(settings: Settings) -> None:
    """Megatron's flags are off where they are absent: distributed optimizer, fp32 gradients, recomputation."""
    settings.put("framework", "megatron", "the arguments of this file")
    if settings.get("zero") == 1:  # GPT-NeoX, Megatron-DeepSpeed: stage 1 shards what the distributed optimizer does
        settings.put("optimizer.distributed", True, settings.because["zero"])
    if (stage := settings.get("zero")) in (2, 3):
        settings.put("optimizer.distributed", True, settings.because["zero"])
        settings.unread.append(
            f"zero_stage ({stage}): DeepSpeed's shards under Megatron, for which the distributed optimizer stands"
        )
        settings.drop("zero")
    settings.default("micro_batch", 1, "one sequence")
    _gradients(settings)
    _loss(settings)
    _recompute(settings)
    if not settings.get("optimizer.distributed") and not settings.get("fsdp"):
        settings.put("options.sharding", "ddp", "Megatron: --use-distributed-optimizer is off")
    _shape(settings)
    _stages(settings)
    _launches(settings)


def _launches(settings: Settings) -> None:
    """How tokens reach experts, and what CUDA graphs replay.

    Sources: Megatron-LM, core/transformer/moe/token_dispatcher.py (flex is DeepEP or HybridEP; drop_and_pad) and
    core/transformer/transformer_config.py (cuda_graph_impl; cuda_graph_modules, once cuda_graph_scope: empty is whole layers).
    """
    flexible = settings.get("experts.dispatcher") == "flex" or settings.get("experts.deepep")
    kind = "padded" if settings.get("experts.padded") else "flex" if flexible else "alltoall"
    told = next((n for n in ("padded", "dispatcher", "deepep") if settings.get(f"experts.{n}")), "")
    if told:
        settings.put("options.dispatcher", kind, settings.because[f"experts.{told}"])
    if kind == "padded":  # moe_utils.py, get_capacity: as many rows as the mean times the factor
        capacity = settings.get("experts.capacity")
        settings.put("options.imbalance", max(1.0, capacity) if capacity else None, "moe_expert_capacity_factor")
    elif settings.get("experts.capacity"):
        told = settings.because["experts.capacity"].rsplit(": ", 1)[-1]
        settings.unread.append(f"{told} (without padding: the tokens that it drops are counted)")
    if settings.get("graphs.by"):
        whole = () if settings.get("graphs.by") == "full_iteration" else settings.get("graphs.modules", ())
        share, because = graphed_share(whole), settings.because["graphs.by"]
        settings.put(
            "options.graphed", share, because if share in (0.0, 1.0) else f"{because}; an estimate of those parts' launches"
        )
        settings.unread += [f"cuda_graph_modules ({part})" for part in whole if part not in GRAPHED_PARTS]


def _stages(settings: Settings) -> None:
    """A written layout tells the chunks of a stage; uneven ends are written as one."""
    pp, because = settings.get("parallel.pp", 1), "the pipeline layout"
    layers, vpp = settings.get("shape.layers"), settings.get("parallel.vpp", 1)
    first, last = settings.get("ends.first"), settings.get("ends.last")
    counted = {name: bool(settings.get(f"ends.{name}")) for name in ("embedding", "loss")}
    if settings.get("options.stage_layout"):
        settings.put("parallel.vpp", chunks_of(settings.get("options.stage_layout"), pp), because)
    elif layers and pp > 1 and (first or last):
        settings.put("options.stage_layout", uneven_layout(layers, pp, vpp, first=first, last=last), because)
    elif layers and pp > 1 and any(counted.values()):
        settings.put("options.stage_layout", counted_ends(layers, pp, vpp, **counted), because)


def _loss(settings: Settings) -> None:
    """The fused cross entropy: Megatron's own (core/fusions/fused_cross_entropy.py), or Transformer Engine's."""
    if settings.get("loss.fused"):
        settings.put("loss", "fused" if settings.get("loss.by") == "te" else "vocab_parallel_copy", "--cross-entropy-loss-fusion")


def _gradients(settings: Settings) -> None:
    """bf16 implies fp32 main gradients (arguments.py) unless they are asked to be reduced in bf16."""
    if settings.get("gradients.narrow"):
        settings.put("grad_dtype", "bfloat16", settings.because["gradients.narrow"])
    if settings.get("optimizer.aware"):
        for part, target in (("gradients", "grad_dtype"), ("master", "options.master"), ("states", "options.states")):
            settings.put(target, settings.get(f"aware.{part}"), settings.because.get(f"aware.{part}", ""))


def _recompute(settings: Settings) -> None:
    granularity = settings.get("recompute.granularity")
    because = settings.because.get("recompute.granularity", "Megatron: no recomputation by default")
    told = settings.because.get("recompute.method", "")
    if granularity is None and told.endswith(
        " activations_checkpoint_method"
    ):  # Megatron before 2022: the method alone turns it on
        granularity, because = "full", told
    if granularity == "full":
        method, layers = settings.get("recompute.method", "uniform"), settings.get("recompute.layers", 1)
        settings.put("checkpointing", "full" if (method, layers) == ("uniform", 1) else f"{method}:{layers}", because)
    elif granularity == "selective":
        modules = settings.get("recompute.modules", "core_attn")
        settings.put("checkpointing", "selective" if modules == "core_attn" else f"modules:{modules}", because)
    else:
        settings.put("checkpointing", "none", because)


def _shape(settings: Settings) -> None:
    """Switches that turn defaults off: gated only with --swiglu, biased and tied unless told otherwise, layer norms."""
    if "shape.layers" not in settings.values:
        return
    settings.put("shape.gated", False, "Megatron: no --swiglu")
    settings.put("shape.norm", "layernorm", "Megatron: normalization LayerNorm")
    settings.put("shape.tied", not settings.get("shape.untied", False), "--untie-embeddings-and-output-weights")
    settings.put("shape.bias", not settings.get("shape.unbiased", False), "--disable-bias-linear")
    if not settings.get("shape.gated"):
        settings.put("shape.ffn", 4 * settings.get("shape.hidden", 0), "Megatron: ffn_hidden_size 4 h")
    layers, virtual = settings.get("shape.layers"), settings.get("virtual.layers")
    if virtual:
        settings.put(
            "parallel.vpp", max(1, layers // (settings.get("parallel.pp", 1) * virtual)), settings.because["virtual.layers"]
        )
    for name in ("shape.untied", "shape.unbiased"):
        settings.drop(name)
