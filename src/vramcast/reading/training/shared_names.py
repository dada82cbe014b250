"""Names of settings that training programs share, and what each sets: by itself, by how it is put together, in its section."""

import re
from typing import Any

from vramcast.reading.training import huggingface
from vramcast.reading.training.idle_keys import of_quantised_weights
from vramcast.reading.training.keys import Rule, dtype, flag, names, natural, number, text, when, whole
from vramcast.reading.training.peft_config import TYPES as PEFT_TYPES
from vramcast.reading.training.settings import UNSET, Settings
from vramcast.training.adapters.kinds import KINDS
from vramcast.training.optimizers.rules import optimizer as known_optimizer

_PRECISIONS = {
    "bf16": "bfloat16", "bfloat16": "bfloat16", "fp16": "float16", "float16": "float16", "16": "float16", "fp8": "fp8",
    "fp32": "float32", "float32": "float32", "32": "float32", "no": "float32", "false": "float32",
}  # fmt: skip
# Sections of other models, other phases and other programs than the trained step.
ELSEWHERE = frozenset(
    """
    generation inference infer sampling sampler rollout vllm sglang reward reward_model critic ref reference teacher draft judge
    eval evaluation validation val test tokenizer wandb logging logger checkpoint checkpoints ckpt server serving orchestrator env
    scheduler lr_scheduler resources benchmark profiling profiler callbacks metrics vision_config vision_model speculative
    compression pruning export deployment
    """.split()  # noqa: SIM905
)
# The same as a part of a section's name (actor_infer, inference_engine, teacher_args).
_ELSEWHERE_WORDS = frozenset(
    """
    infer inference rollout rollouts generator generation sampling reward critic teacher judge eval evaluation vllm sglang
    """.split()  # noqa: SIM905
)
# Folders of a program's own, which are no organisation of the hub.
_OWN_PLACE = re.compile(
    r"(?:outputs?|checkpoints?|models?|runs?|results?|saved?_?models?|weights|artifacts|data|logs|ckpts?)/", re.I
)
_OF_SEVERAL = ("actor_rollout_ref",)  # a section of several roles, each in a section of its own below


def checkpointing(settings: Settings, value: Any, because: str) -> None:
    """On and off, ``full``, ``selective``, ``unsloth`` (offloaded), every n-th layer as a number."""
    word = str(value).lower()
    if word.startswith(("offload", "unsloth")):
        huggingface.checkpointing(settings, word, because)
    elif word in ("full", "selective"):
        settings.put("checkpointing", word, because)
    elif flag(value) is not None:
        settings.put("checkpointing", "full" if flag(value) else "none", because)
    elif re.fullmatch(r"one_in_\w+", word):  # OLMo's: which layers, no recipe has a word for
        settings.unread.append(f"{because.rsplit(': ', 1)[-1]} ({word[:40]}: counted as none)")


def no_checkpointing(settings: Settings, value: Any, because: str) -> None:
    """The switch that turns it off."""
    if flag(value) is not None:
        settings.put("checkpointing", "none" if flag(value) else "full", because)


def precision(settings: Settings, value: Any, because: str) -> None:
    """``bf16``, Lightning's ``bf16-mixed`` and ``bf16-true`` (weights too)."""
    word, _, how = str(value).lower().partition("-")
    if word in _PRECISIONS:
        settings.put("compute_dtype", _PRECISIONS[word], because)
    if word in ("no", "false"):  # no autocast: what is loaded in 16 bits multiplies so
        settings.put("off.autocast", True, because)
    if how == "true" and word in _PRECISIONS:
        settings.put("param_dtype", _PRECISIONS[word], because)


def _quantised(settings: Settings, value: Any, because: str) -> None:
    """``4bit``, ``nf4``, ``qlora`` or ``8bit`` as a word."""
    word = re.sub(r"[-_ ]", "", str(value).lower())
    if re.fullmatch(r"(?:bnb)?(?:4bit|nf4|int4|qlora)(?:bnb)?", word):
        settings.put("quant", "nf4", because)
    elif re.fullmatch(r"(?:bnb)?(?:8bit|int8)(?:bnb)?", word):
        settings.put("quant", "int8", because)


def _switched(meaning: str) -> Rule:
    def read(settings: Settings, value: Any, because: str) -> None:
        if flag(value):
            settings.put("compute_dtype", meaning, because)

    return read


def sharding(settings: Settings, value: Any, because: str) -> None:
    """A strategy by its name: ``FULL_SHARD``, ``fsdp2``, ``deepspeed_stage_3``, ``zero3``."""
    word = str(value).lower()
    if stage := re.search(r"(?:zero|stage|z)[-_]?([0-3])(?!\d)", word):
        settings.put("zero", int(stage[1]), because)
    elif "fsdp2" in word:
        settings.put("fsdp", 2, because)
    elif "fsdp" in word or word in ("full_shard", "hybrid_shard"):
        settings.put("fsdp", 1, because)
    elif word == "shard_grad_op":
        settings.put("fsdp", 1, because)
        settings.put("options.reshard", False, because)
    elif "megatron" in word:
        settings.put("framework", "megatron", because)


def deepspeed_file(settings: Settings, value: Any, because: str) -> None:
    """A DeepSpeed file by its path, which is read where it lies beside; a word tells a stage. Raises ValueError for others."""
    if isinstance(value, str) and value.endswith((".json", ".yaml", ".yml")):
        settings.put("file.deepspeed", value, because)
    elif isinstance(value, str) and value not in UNSET:
        sharding(settings, value, because)
    elif flag(value):
        raise ValueError("which stage of ZeRO it is, a switch does not say")


def adapter_kind(settings: Settings, value: Any, because: str) -> None:
    """A kind of adapter by PEFT's name: LoRA switches adapters on, another kind is the method."""
    word = re.sub(r"[-_ ]", "_", str(value).lower()).replace("p_tuning_v2", "prefix_tuning")
    if word in ("lora", "qlora"):
        settings.put("adapter.on", True, because)
        settings.put("quant", "nf4" if word == "qlora" else None, because)
    elif (found := PEFT_TYPES.get(word, word)) in {*KINDS, *PEFT_TYPES.values()}:
        settings.put("method", found, because)
    elif value not in UNSET:
        raise ValueError("no kind of adapter of PEFT")


def _fsdp(settings: Settings, value: Any, because: str) -> None:
    if flag(value):
        settings.put("fsdp", 1, because)


def optimizer(settings: Settings, value: Any, because: str) -> None:
    """A name of an optimizer; a class by its last part."""
    name = str(value).rsplit(".", 1)[-1].lower()
    known = {"adam": "adamw", "fusedadam": "adamw", "deepspeedcpuadam": "adamw", "adamw": "adamw", "cpuadam": "adamw"}
    if re.fullmatch(r"[a-z][a-z0-9_]{2,40}", name) and not isinstance(value, bool):
        known_optimizer(known.get(name, name))  # a word of the program's own is left unread
        settings.put("optimizer", known.get(name, name), because)


def _model(settings: Settings, value: Any, because: str) -> None:
    """A model's name or path; a word such as ``llama3`` names none."""
    word = str(value)
    if "/" in word or re.search(r"\d+(?:\.\d+)?[bm]\b", word.lower()):
        settings.put("model", word, because)


def _of_hub(settings: Settings, value: Any, because: str) -> None:
    """``model.checkpoint: org/name`` of the hub; a path or a file below that key is the program's own, where training goes on."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][\w-]*/[A-Za-z][\w.-]*", value) and not _OWN_PLACE.match(value):
        settings.put("model", value, because)
    elif value not in UNSET:
        settings.unread.append(f"{because.rsplit(': ', 1)[-1]} (a checkpoint of the program's own)")


def _named(settings: Settings, value: Any, because: str) -> None:
    """``model: org/name``; other words under that key are a program's own."""
    if isinstance(value, str) and "/" in value and not value.endswith((".yaml", ".yml", ".json", ".py")):
        settings.put("model", value, because)


def targets(settings: Settings, value: Any, because: str) -> None:
    found = ("all-linear",) if value in ("all", "all-linear") else names(value)
    settings.put("adapter.targets", found, because)


def _float_type(value: Any) -> str | None:
    """A type that a step computes in. Raises ValueError for others, such as the ``int8`` of a quantised base."""
    name = dtype(value)
    if name is not None and not name.startswith(("float", "bfloat", "fp8")):
        raise ValueError(f"{name} is no type that a step computes in")
    return name


def _degree(target: str) -> Rule:
    """A size of a mesh; -1 is what the others leave."""
    return target, lambda value: None if value in UNSET or int(value) < 1 else int(value)


def _listed(value: Any) -> int | None:
    """A number of cards; of a list of devices (``"0,1,2,3"``) how many it names; -1, all of them, is none."""
    listed = [one for one in value.split(",") if one.strip()] if isinstance(value, str) and "," in value else value
    return len(listed) or None if isinstance(listed, list) else None if str(value).strip() == "-1" else whole(value)


def _stage(settings: Settings, value: Any, because: str) -> None:
    if value not in UNSET and not isinstance(value, bool) and str(value) in ("0", "1", "2", "3"):
        settings.put("zero", int(value), because)


# Names by what they set; a name stands for the last part of a dotted key. Those of one letter are read in their section alone.
_NAMES: tuple[tuple[Rule, str], ...] = (
    (("micro_batch", whole), "per_device_train_batch_size micro_batch_size micro_batch per_device_batch_size local_batch_size "
     "train_micro_batch_size_per_gpu micro_batch_size_per_gpu per_gpu_train_batch_size device_batch_size batch_size_per_gpu "
     "batch_size_per_device micro_train_batch_size train_micro_batch_size microbatch_size micro_bsz mbs per_gpu_batch_size "
     "device_train_microbatch_size ppo_micro_batch_size_per_gpu per_device_micro_batch_size train_mbs batch_size_per_rank"),
    (("global_batch", whole), "global_batch_size gbs train_batch_size total_batch_size train_global_batch_size global_bsz "
     "effective_batch_size"),
    (("size.any", whole), "batch_size bsz bs"),
    (("size.rollouts", whole), "rollouts_per_example num_rollouts rollouts_per_prompt"),
    (("accumulate", whole), "gradient_accumulation_steps accumulate_grad_batches gradient_accumulation_iters grad_accum_steps "
     "grad_accum batch_accumulation_per_replica accumulation_steps grad_acc_steps gradient_accumulation grad_accumulation_steps "
     "accum_steps num_grad_accum"),
    (("seq", whole), "seq_length seq_len max_seq_length max_seq_len sequence_length sequence_len cutoff_len model_max_length "
     "max_sequence_length encoder_seq_length max_length max_len block_size context_length train_seq_len max_seqlen total_length "
     "max_total_length max_total_sequence_length pack_length multimodal_max_length tokens_per_sample max_tokens_per_sample"),
    (("length.source", whole), "source_max_len max_prompt_length prompt_max_len max_source_length prompt_length "
     "max_prompt_tokens max_input_length max_input_len max_input_tokens prompt_max_length"),
    (("length.target", whole), "target_max_len max_response_length generate_max_len max_target_length max_completion_length "
     "response_length response_tokens max_response_tokens completion_length generate_max_length"),
    (("length.generated", whole), "max_new_tokens max_gen_tokens max_output_length"),  # of an evaluation where a target is told
    (("adapter.rank", natural), "lora_r lora_rank lora_dim lora_attn_dim adapter_rank max_lora_rank"),
    (("adapter.dropout", number), "lora_dropout"),
    (("adapter.dora", flag), "use_dora dora lora_dora enable_dora"),
    (adapter_kind, "peft_type"),
    (("adapter.sizes.num_virtual_tokens", whole), "num_virtual_tokens"),
    (targets, "lora_target_modules target_modules lora_target"),
    (("adapter.modules_to_save", names), "modules_to_save lora_modules_to_save"),
    (("adapter.parameters", names), "target_parameters lora_target_parameters"),
    (("adapter.on", flag), "use_lora use_peft enable_lora use_peft_lora lora_enable is_peft is_lora"),
    (huggingface.four_bit, "load_in_4bit use_4bit use_qlora qlora use_4bit_quantization load_4bit q_lora"),
    (huggingface.eight_bit, "load_in_8bit use_8bit use_8bit_quantization load_8bit"),
    (("quant.kind", text), "bnb_4bit_quant_type quant_type bnb_quant_type"),
    (("options.double_quant", flag), "bnb_4bit_use_double_quant double_quant use_double_quant use_nested_quant "
     "bnb_double_quant bnb_use_double_quant bnb_4bit_double_quant"),
    (huggingface.bits, "bits quantization_bit quant_bits"),
    (_quantised, "quant quantization quantize quantization_mode load_in base_quantization"),
    (checkpointing, "gradient_checkpointing activation_checkpointing enable_gradient_checkpointing checkpoint_activations "
     "gradient_checkpointing_enable use_gradient_checkpointing recompute_granularity recompute_layer activation_checkpoint "
     "grad_checkpoint grad_checkpointing use_activation_checkpointing recompute ac_mode "
     "selective_activation_checkpointing"),
    (no_checkpointing, "disable_gradient_checkpointing disable_activation_checkpointing no_gradient_checkpointing"),
    (("options.reentrant", flag), "use_reentrant gradient_checkpointing_use_reentrant"),
    (optimizer, "optim optimizer optimizer_name optimizer_type"),
    (precision, "precision mixed_precision train_dtype param_dtype_str amp_dtype compute_dtype"),
    (_switched("bfloat16"), "bf16 use_bf16 bfloat16"),
    (_switched("float16"), "fp16 use_fp16"),
    (("param_dtype", dtype), "torch_dtype torch_dtype_str model_dtype model_weight_dtype weight_dtype weights_dtype"),
    (huggingface.attention, "attn_implementation flash_attention flash_attn use_flash_attn use_flash_attention flash_attention_2 "
     "use_flash_attention_2"),
    (_stage, "zero_stage deepspeed_stage ds_stage zero_optimization_stage ds_zero_stage"),
    (sharding, "sharding_strategy distributed_strategy fsdp_sharding_strategy fsdp_type distributed_backend "
     "distributed_training_framework"),
    (deepspeed_file, "deepspeed_config deepspeed_config_file deepspeed_config_path deepspeed"),
    (("off.deepspeed", when(None, True)), "use_deepspeed enable_deepspeed"),
    (_fsdp, "enable_fsdp use_fsdp"),
    (("host.asked", flag), "offload"),
    (("compile", flag), "torch_compile compile_model use_torch_compile compile"),
    (huggingface.fused_kernels, "use_liger_kernel enable_liger_kernel use_liger"),
    (_degree("parallel.tp"), "tensor_model_parallel_size tensor_parallel_size tp_size tensor_parallel_degree model_parallel_size "
     "tensor_parallel tp_degree"),
    (_degree("parallel.pp"), "pipeline_model_parallel_size pipeline_parallel_size pp_size pipeline_parallel_degree "
     "pipe_parallel_size pipeline_parallel pp_degree"),
    (_degree("parallel.cp"), "context_parallel_size cp_size context_parallel_degree ring_attn_size cp_degree"),
    (_degree("parallel.ep"), "expert_model_parallel_size expert_parallel_size ep_size expert_parallel_degree ep_degree"),
    (("parallel.sp", flag), "sequence_parallel"),
    (_degree("parallel.replicate"), "data_parallel_replicate_degree dp_replicate_size dp_replicate"),
    (_degree("parallel.shard"), "data_parallel_shard_degree dp_shard_size dp_shard"),
    (("options.freezes_towers", flag), " ".join(huggingface.TOWERS_FROZEN)),
    (("lengths.packed", flag), "packing sample_packing pack_sequences use_packing"),
    (("shape.layers", whole), "num_hidden_layers num_layers n_layer n_layers nlayers nlayer"),
    (("shape.hidden", whole), "hidden_size n_embd d_model emb_dim"),
    (("shape.heads", whole), "num_attention_heads n_head n_heads nhead nheads"),
    (("shape.kv_heads", whole), "num_key_value_heads num_query_groups n_kv_heads n_kv_head num_kv_heads"),
    (("shape.ffn", whole), "intermediate_size ffn_hidden_size ffn_dim dim_ff dim_feedforward d_ff"),
    (("shape.experts", whole), "num_experts num_local_experts n_routed_experts moe_num_experts"),
    (("shape.active", whole), "num_experts_per_tok num_experts_per_token moe_top_k moe_topk moe_router_topk"),
    (("shape.expert_ffn", whole), "moe_intermediate_size moe_ffn_hidden_size"),
    (("shape.vocab", whole), "vocab_size padded_vocab_size"),
    (("shape.tied", flag), "tie_word_embeddings tied_embeddings tie_embeddings"),
    (("tokens.at_once", whole), "max_batch_len max_tokens_per_gpu max_token_in_packing batch_max_len max_tokens_per_microbatch "
     "max_tokens_per_microbatch_in_train max_tokens_per_mbs"),
    (("model", text), "model_name_or_path pretrained_model_name_or_path pretrained_model_name"),
    (_model, "base_model model_name model_path hf_model hf_checkpoint "
     "hf_model_ckpt pretrain partial_pretrain model_id base_model_id base_model_name pretrained_model pretrained_path "
     "model_name_or_dir model_dir hf_path initial_policy_model model_id_or_path hf_model_id student_model student_model_name "
     "student_model_path student_model_name_or_path student_path student_name "
     "lm_path lm_name_or_path llm_name_or_path llm_path language_model_path"),
    (_named, "model"),
    (("cards.each", whole), "n_gpus_per_node gpus_per_node actor_num_gpus_per_node nproc_per_node num_gpus_per_node "
     "gpu_per_node policy_num_gpus_per_node"),
    (("cards.nodes", whole), "nnodes num_nodes actor_num_nodes n_nodes policy_num_nodes"),
    (("cards.all", whole), "num_gpus world_size num_processes n_gpus gpu_count"),
    (("cards.all", _listed), "gpus"),
)  # fmt: skip
RULES: dict[str, Rule] = {name: rule for rule, line in _NAMES for name in line.split()}
# The same things in words that no list has: how names are put together. Those of other phases are none of them.
_NOT_THESE = re.compile(
    r"eval|valid|\bval_|test|infer|rollout|log_?prob|forward|gener|save|logg|warmup|buffer|prefetch|bucket|thresh|worker|kwargs|ratio|"
    r"_fn$|path|_dir$|reward|critic|ref_|draft|min_|num_train|queue|cache|vision|image|audio|token_"
)
_PATTERNS: tuple[tuple[re.Pattern[str], Rule], ...] = tuple(
    (re.compile(pattern), rule)
    for pattern, rule in (
        (
            r"(?=.*(?:batch|bsz|bs\b))(?=.*(?:micro|per_device|per_gpu|per_rank|per_worker|local|device)).+",
            ("micro_batch", whole),
        ),
        (r"(?=.*(?:batch|bsz))(?=.*(?:global|total|effective)).+", ("global_batch", whole)),
        (r"\w*grad\w*_?acc\w*|\w*accum\w*_(?:steps|iters?|factor)", ("accumulate", whole)),
        (r"(?:max_|train_|model_|input_)*(?:seq|sequence|context|ctx)_?(?:max_)?(?:len|length|size)", ("seq", whole)),
        (r"\w*(?:lora|adapter|peft)\w*_(?:r|rank|dim)", ("adapter.rank", natural)),
        (
            r"(?:llm|text|language|base|backbone|policy|actor|student|pretrained|hf)_?(?:model)(?:_name|_path|_id|_dir|_or|_checkpoint)*",
            _model,
        ),
        (r"(?:use|enable|with)_(?:lora|peft)\w*", ("adapter.on", flag)),
        (r"\w*(?:grad|gradient|activation|act)_(?:checkpoint|ckpt)\w*", checkpointing),
        (r"(?:use_|load_|enable_)*(?:in_)?(?:4_?bit|nf4)(?:_quant\w*)?", huggingface.four_bit),
        (r"(?:tensor|tp)(?:_model)?_?(?:parallel\w*|size|degree|dim)(?:_size|_degree|_dim)?", _degree("parallel.tp")),
        (r"(?:pipeline|pipe|pp)(?:_model)?_?(?:parallel\w*|size|degree|dim)(?:_size|_degree|_dim)?", _degree("parallel.pp")),
        (r"(?:expert|ep)(?:_model)?_?(?:parallel\w*|size|degree|dim)(?:_size|_degree|_dim)?", _degree("parallel.ep")),
        (r"(?:context|cp)_?(?:parallel\w*|degree|dim)(?:_size|_degree|_dim)?", _degree("parallel.cp")),
        (r"(?:num|n|total)_(?:gpus?|devices|cards|accelerators)", ("cards.all", whole)),
        (r"(?:n|num)?_?(?:gpus?|devices|procs?)_per_(?:node|host)", ("cards.each", whole)),
    )
)
# By the last two parts of a key: names that mean this in their section alone.
_IN_SECTION: tuple[tuple[str, frozenset[str], Rule], ...] = (
    (r"\w*(?:lora|peft|adapter)\w*", frozenset({"r", "rank", "dim"}), ("adapter.rank", natural)),
    (r"\w*(?:lora|peft)\w*", frozenset({"dropout"}), ("adapter.dropout", number)),
    (r"(?:use_)?(?:lora|peft)(?:_config|_args)?", frozenset({"enabled", "enable"}), ("adapter.on", flag)),
    (r"(?:bf16|bfloat16)", frozenset({"enabled", "enable"}), _switched("bfloat16")),
    (r"(?:fp16|float16)", frozenset({"enabled", "enable"}), _switched("float16")),
    (r"zero\w*|deepspeed\w*", frozenset({"stage"}), _stage),
    (r"model", frozenset({"checkpoint", "pretrained"}), _of_hub),
    (r"(?:model|actor|policy|base)", frozenset({"path", "name", "base", "id", "name_or_path"}), _model),
    (r"(?:activation_checkpoint\w*|gradient_checkpoint\w*|ac|recompute)", frozenset({"mode", "freq", "enabled"}), checkpointing),
    (r"optimizer\w*|optim", frozenset({"name", "type", "_target_"}), optimizer),
    (r"training\w*|train", frozenset({"optimizer"}), optimizer),
    (r"(?:model|training|train)", frozenset({"dtype"}), ("param_dtype", _float_type)),
    (r"compile", frozenset({"enable", "enabled"}), ("compile", flag)),
    (r"distributed|train|training", frozenset({"compile"}), ("compile", flag)),
    (r"deepspeed", frozenset({"config_path", "config", "config_file", "file"}), deepspeed_file),
    (r"peft\w*|adapter\w*", frozenset({"method", "type", "peft_type", "adapter_type"}), adapter_kind),
    (r"model", frozenset({"dim"}), ("shape.hidden", whole)),
    (r"\w*moe\w*|router|experts", frozenset({"top_k", "topk"}), ("shape.active", whole)),
    (r"fsdp\w*", frozenset({"enable", "enabled"}), _fsdp),
    (r"fsdp", frozenset({"param_offload", "offload_params", "cpu_offload"}), huggingface.offloads("parameters")),
    (r"fsdp", frozenset({"optimizer_offload"}), huggingface.offloads("optimizer")),
    (r"(?:distributed|trainer)\w*", frozenset({"strategy"}), sharding),
    (r"strategy_args", frozenset({"strategy_name"}), sharding),
    (r"strategy", frozenset({"stage"}), _stage),
    (r"strategy", frozenset({"class_path", "_target_", "name"}), sharding),
    (r"trainer|fabric", frozenset({"devices", "gpus"}), ("cards.each", _listed)),
    (r"model_args", frozenset({"dtype"}), ("compute_dtype", _float_type)),
    *((r"(?:parallel\w*|distributed|mesh|layout|parallelism_config|train|training)", frozenset({name}),
       _degree(f"parallel.{name}")) for name in ("tp", "pp", "cp", "ep")),
)  # fmt: skip


_LEVELS = ("init_args", "dict_kwargs", "args", "kwargs", "config")  # of jsonargparse and the like: between a section and its keys


def rule_of(key: str) -> Rule | None:
    """What a dotted key means by its last parts; None for a name that programs do not share, or that is another model's."""
    whole_key = key.lower().replace("-", "_").split(".")
    parts = [*(part for part in whole_key[:-1] if part not in _LEVELS), whole_key[-1]]
    if parts[-1] == "max_generate_length" and not {"eval", "eval_sampling_params"} & set(
        parts
    ):  # the answers that are learnt from
        return "length.target", whole
    if of_another_phase(parts[:-1]) or of_quantised_weights(parts):
        return None
    if len(parts) > 1:
        for section, own, rule in _IN_SECTION:
            if parts[-1] in own and re.fullmatch(section, parts[-2]):
                return rule
    elif key in ("tp", "pp", "cp", "ep"):
        return _degree(f"parallel.{key}")
    elif key == "dtype":  # of a loop that casts as it goes (nanoGPT's)
        return "compute_dtype", _float_type
    known = RULES.get(parts[-1])
    if isinstance(known, tuple) and known[0].startswith("shape.") and re.search("lora|peft|adapter", ".".join(parts[:-1])):
        return None  # experts that adapters have are none of the model's
    if known is not None or _NOT_THESE.search(parts[-1]):
        return known
    return next((one for pattern, one in _PATTERNS if pattern.fullmatch(parts[-1])), None)


def of_another_phase(sections: list[str]) -> bool:
    """Whether the sections around a key are of another model, phase or program than the trained step."""
    return bool(ELSEWHERE & set(sections)) or any(
        section not in _OF_SEVERAL and _ELSEWHERE_WORDS & set(section.split("_")) for section in sections
    )
