"""What a program was doing when memory ran out, by the frames of the Python traceback above the message.

An evaluation, a save or an engine's start decides wherever it stands in the stack; else the innermost frame that says something
does. Frames are those that torch, transformers, DeepSpeed, vLLM and their kin print, by file and function.
"""

import re

import msgspec

_FRAME = re.compile(r'File "([^"\n]{1,300})", line \d{1,7}, in ([\w<>.]{1,100})')
_MOST_FRAMES = 400


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """``doing``: what ran; ``holds``: what fills the card then; ``advice``: what makes it less, the surest first."""

    doing: str
    holds: str
    advice: tuple[str, ...]


_STATES = Moment(
    doing="creating the optimizer's states, at the first step",
    holds="two float32 tensors per trained parameter for AdamW: they come on top of weights and gradients and stay",
    advice=(
        "an 8-bit optimizer (adamw_8bit, paged_adamw_8bit): a quarter of the states",
        "sharding them over cards: ZeRO-1 to 3 or FSDP",
        "LoRA: states for the adapters alone",
        "--offload optimizer: states in host memory",
    ),
)
_EVALUATION = Moment(
    doing="evaluating",
    holds="logits of every evaluated batch, kept on the card until the loop ends",
    advice=(
        "eval_accumulation_steps=1: logits go to the host after each batch",
        "prediction_loss_only=True, where no metric needs the logits",
        "a smaller per_device_eval_batch_size (its default is 8)",
    ),
)
_LOSS = Moment(
    doing="computing the loss",
    holds="logits of tokens x vocabulary, a float32 copy and their gradient",
    advice=(
        "a fused or chunked loss (Liger, cut cross-entropy; --loss linear)",
        "a smaller micro-batch with more accumulation, or shorter sequences",
    ),
)
_SAVING = Moment(
    doing="saving a checkpoint",
    holds="the whole state dict, gathered on one card",
    advice=(
        "a sharded state dict (FSDP: SHARDED_STATE_DICT; DeepSpeed: stage3_gather_16bit_weights_on_model_save false)",
        "gathering to the host (offload_to_cpu=True)",
    ),
)
_FLAT = Moment(
    doing="setting up DeepSpeed's ZeRO optimizer",
    holds="flat copies of this rank's parameters: float32 masters, then gradients and states of their size",
    advice=(
        "a higher ZeRO stage, or more ranks to share it",
        'offload_optimizer {"device": "cpu"}: the flat float32 copy stays in host memory',
        "LoRA: only adapters are copied",
    ),
)
_REDUCTION = Moment(
    doing="reducing gradients (DeepSpeed)",
    holds="gradient buckets beside the gradients themselves",
    advice=("smaller reduce_bucket_size and allgather_bucket_size (5e7)", "overlap_comm false: one bucket fewer"),
)
_GATHER = Moment(
    doing="gathering sharded weights for a layer",
    holds="the whole weights of the layers in use, beside this rank's shard",
    advice=(
        "smaller stage3_prefetch_bucket_size and stage3_max_live_parameters (DeepSpeed)",
        "wrapping each block for itself, and reshard_after_forward (FSDP)",
    ),
)
_CACHE = Moment(
    doing="growing the KV cache while generating",
    holds="keys and values of all sequences so far",
    advice=(
        "fewer or shorter sequences at once",
        "a quantised or offloaded cache (cache_implementation)",
        "a paged engine: vLLM",
    ),
)
_POOL = Moment(
    doing="allocating an engine's KV cache",
    holds="weights, what the profile run left, and now the pool",
    advice=(
        "a smaller --gpu-memory-utilization (or --mem-fraction-static): other processes or fragments hold what it counts on",
        "stopping what else holds the card",
    ),
)
_GRAPHS = Moment(
    doing="capturing CUDA graphs",
    holds="a memory pool for every captured batch size, beside the cache",
    advice=("--enforce-eager, or fewer sizes (--max-num-seqs 64)", "a smaller --gpu-memory-utilization"),
)
_PROFILE = Moment(
    doing="the engine's profile run",
    holds="activations and logits of the largest batch it will ever take",
    advice=("smaller --max-num-batched-tokens and --max-num-seqs",),
)
_LOADING = Moment(
    doing="loading the weights",
    holds="weights alone: the model does not fit this card as it is stored",
    advice=(
        "fewer bits: a published AWQ, GPTQ or FP8 upload, load_in_4bit, a GGUF file",
        "more cards (device_map='auto', --tensor-parallel-size)",
        "layers on the host (device_map with offload, --cpu-offload-gb, -ngl)",
    ),
)
_MERGING = Moment(
    doing="merging an adapter into its base",
    holds="the product of its two matrices in full, one layer after the other, beside the base",
    advice=("merging on the host (device_map='cpu')",),
)
_ATTENTION = Moment(
    doing="computing attention scores",
    holds="scores of sequence x sequence for every head, in float32 where softmax asks for it",
    advice=("FlashAttention or SDPA instead of eager attention", "shorter sequences"),
)
_BACKWARD = Moment(
    doing="the backward pass",
    holds="everything the forward saved, and now gradients",
    advice=(
        "gradient checkpointing: only block inputs are saved, about a third more time",
        "a smaller micro-batch with more accumulation, or shorter sequences",
    ),
)
_FORWARD = Moment(
    doing="the forward pass of training",
    holds="activations saved for the backward pass, layer after layer",
    advice=_BACKWARD.advice,
)


class Row(msgspec.Struct, frozen=True):
    """Frames of a moment: a pattern of their file, and patterns of whole function names."""

    file: str
    functions: str
    moment: Moment

    def matches(self, file: str, function: str) -> bool:
        """Whether a frame is one of them."""
        return re.search(self.file, file) is not None and any(re.fullmatch(name, function) for name in self.functions.split())


_TRAINER = r"transformers/trainer|trainer_pt_utils|trl/|accelerate/"
_OPTIMIZERS = r"torch/optim/|bitsandbytes/optim|transformers/optimization|adafactor"
_ZERO = r"deepspeed/runtime/zero/stage"
# Wherever in the stack they stand, these say what the program was at.
_WHOLE = (
    Row(_TRAINER, "evaluation_loop prediction_step nested_concat evaluate pad_across_processes", _EVALUATION),
    Row(
        "", "_?save_checkpoint save_model save_pretrained _gather_state_dict full_state_dict _full_post_state_dict_hook", _SAVING
    ),
    Row("", "_?capture_model capture_one_batch_size init_cuda_graphs cuda_graph_capture", _GRAPHS),
    Row("", "initialize_kv_cache.* _allocate_kv_cache.* allocate_gpu_cache _create_buffers init_memory_pool", _POOL),
    Row("", "profile_run _dummy_run determine_available_memory determine_num_available_blocks", _PROFILE),
    Row("", "merge_and_unload _unload_and_optionally_merge", _MERGING),
)
# Of these the innermost frame decides, and of one frame the first row.
_INNERMOST = (
    Row("partition_param|partitioned_param_coordinator", "fetch_sub_module .*all_gather.*", _GATHER),
    Row(_ZERO, "__init__ flatten_dense_tensors_aligned _create_fp32_partitions initialize_optimizer.*", _FLAT),
    Row(_ZERO, ".*reduce.* .*epilogue.* .*bucket.*", _REDUCTION),
    Row("torch/distributed/fsdp", "_?unshard all_gather.* _wait_for_unshard _alloc_padded_unsharded.*", _GATHER),
    Row(_OPTIMIZERS, "_init_group init_state step _multi_tensor.* _get_value", _STATES),
    Row("transformers/cache_utils", "update .*", _CACHE),
    Row("", "cross_entropy ForCausalLMLoss fixed_cross_entropy log_softmax logprobs_from_logits selective_log_softmax", _LOSS),
    Row("", "eager_attention_forward _upad_input softmax _attn scaled_dot_product_attention", _ATTENTION),
    Row("", "from_pretrained load_model load_weights _load_state_dict_into.* _load_pretrained_model load_state_dict", _LOADING),
    Row("torch/nn/modules/module", "_apply convert", _LOADING),
    Row(
        "torch/_tensor|torch/autograd|torch/utils/checkpoint", "backward _engine_run_backward unpack_hook recompute_fn", _BACKWARD
    ),
    Row(_TRAINER, "compute_loss training_step", _FORWARD),
)


def moment_of(text: str) -> Moment | None:
    """What ran when the last traceback of a text ended, or None where no frame tells."""
    start = text.rfind("Traceback (most recent call last)")
    frames = [(file.replace("\\", "/"), name) for file, name in _FRAME.findall(text[max(0, start) :])[-_MOST_FRAMES:]]
    for row in _WHOLE:
        if any(row.matches(*frame) for frame in frames):
            return row.moment
    found = (row.moment for frame in reversed(frames) for row in _INNERMOST if row.matches(*frame))
    return next(found, None)
