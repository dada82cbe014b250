"""verl's trainer (``actor_rollout_ref.*``) and EasyR1's (``worker.*``) as YAML or Hydra's words: the actor's step alone.

Keys and defaults: verl 0.5.0, trainer/config (ppo_trainer.yaml, actor, model); ``ppo_micro_batch_size`` without ``_per_gpu`` is
that of all ranks together (workers/fsdp_workers.py divides it by the ranks). ``param_offload`` and its siblings move the actor
between host and card between the phases of a round (load_fsdp_model_to_gpu before an update), so a step's peak is the same;
EasyR1 alike (workers/fsdp_workers.py). The engine of the rollouts sleeps while the actor learns. A reference under FSDP is kept
on the host whatever is said (fsdp_workers.py at b178a3cd5: "we force reference policy to use CPUOffload"); under Megatron it
is not.
"""

from typing import Any

from vramcast.reading.training import huggingface, megatron
from vramcast.reading.training.keys import Rule, dtype, flag, names, natural, text, when, whole
from vramcast.reading.training.settings import Settings
from vramcast.untrusted import printable

NAME = "verl's trainer"
_ACTORS = ("actor_rollout_ref.", "worker.")
SIGNATURE = frozenset(
    {"actor_rollout_ref.model.path", "actor_rollout_ref.model.enable_gradient_checkpointing", "actor_rollout_ref.actor.optim.lr"}
    | {"actor_rollout_ref.actor.ppo_mini_batch_size", "actor_rollout_ref.rollout.name"}
    | {"worker.actor.model.model_path", "worker.actor.global_batch_size", "worker.rollout.n"}
)


def _strategy(settings: Settings, value: Any, because: str) -> None:
    word = str(value).lower()
    if word in ("fsdp", "fsdp2"):
        settings.put("fsdp", 2 if word == "fsdp2" else 1, because)
    elif word == "megatron":
        settings.put("framework", "megatron", because)


_OWN_FILES = ("ppo_trainer", "ppo_megatron_trainer")  # verl 0.5.0, trainer/config


def _config_named(settings: Settings, value: Any, because: str) -> None:
    """Hydra's file of defaults: verl's ``ppo_megatron_trainer`` runs Megatron; one of another name is told."""
    named = str(value[0] if isinstance(value, list) and value else value)  # the words behind it are keys
    if "megatron" in named:
        settings.put("framework", "megatron", because)
    if (name := named.removesuffix(".yaml")) in _OWN_FILES:
        settings.idle.append("config_name")
    else:
        settings.unread.append(f"config_name ({printable(name)[:60]}: a file of defaults that --from gives too)")


def _ulysses(settings: Settings, value: Any, because: str) -> None:
    """Sequences over several cards of FSDP, which no rule counts."""
    if whole(value) not in (None, 1):
        settings.unread.append(f"{because.rsplit(': ', 1)[-1]} ({value})")


def _reference(settings: Settings, value: Any, because: str) -> None:
    """A second model that scores, for the divergence in the loss."""
    if flag(value):
        settings.put("reference.on", True, because)


_TARGETS: Rule = ("adapter.targets", lambda value: ("all-linear",) if value in ("all", "all-linear") else names(value))
_CHECKPOINTING: Rule = huggingface.checkpointing
_VERL: dict[str, Rule] = {
    "model.path": ("model", text),
    "model.enable_gradient_checkpointing": _CHECKPOINTING,
    "model.enable_activation_offload": huggingface.offloads("activations"),
    "model.lora_rank": ("adapter.rank", natural),
    "model.lora.rank": ("adapter.rank", natural),
    "model.target_modules": _TARGETS,
    "model.lora.target_modules": _TARGETS,
    "model.use_fused_kernels": ("loss", when("linear")),
    "model.use_liger": huggingface.fused_kernels,
    "actor.strategy": _strategy,
    "actor.ppo_micro_batch_size": ("micro_batch.all", whole),
    "actor.ppo_micro_batch_size_per_gpu": ("micro_batch", whole),
    "actor.ppo_mini_batch_size": ("round.mini_batch", whole),
    "actor.use_dynamic_bsz": ("round.by_tokens", flag),
    "actor.ppo_max_token_len_per_gpu": ("round.tokens", whole),
    "actor.ulysses_sequence_parallel_size": _ulysses,
    "actor.use_kl_loss": _reference,
    "actor.freeze_vision_tower": ("options.freezes_towers", flag),
    "actor.use_fused_kernels": ("loss", when("linear")),
    "actor.fsdp_config.model_dtype": ("param_dtype", dtype),
    "actor.fsdp_config.dtype": ("compute_dtype", dtype),
    "actor.fsdp_config.ulysses_sequence_parallel_size": _ulysses,
    "actor.fsdp_config.offload_policy": huggingface.offloads("parameters"),
    "actor.fsdp_config.reshard_after_forward": ("options.reshard", flag),
    "actor.fsdp_config.fsdp_size": ("parallel.shard", lambda value: None if str(value) == "-1" else whole(value)),
    "rollout.n": ("round.answers", whole),
    **{
        f"actor.megatron.{name}": megatron.RULES[name]
        for name in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
                     "expert_model_parallel_size", "expert_tensor_parallel_size", "sequence_parallel",
                     "use_distributed_optimizer", "virtual_pipeline_model_parallel_size", "num_layers_per_virtual_pipeline_stage")
    },
    **{f"actor.megatron.override_transformer_config.{name}": rule for name, rule in megatron.RULES.items()},
    "actor.optim.override_optimizer_config.optimizer_cpu_offload": megatron.RULES["optimizer_cpu_offload"],
    "actor.optim.override_optimizer_config.use_precision_aware_optimizer": megatron.RULES["use_precision_aware_optimizer"],
    "actor.megatron.dtype": ("compute_dtype", dtype),
}  # fmt: skip
_EASY: dict[str, Rule] = {
    "actor.model.model_path": ("model", text),
    "actor.model.enable_gradient_checkpointing": _CHECKPOINTING,
    "actor.model.lora.rank": ("adapter.rank", natural),
    "actor.model.lora.target_modules": _TARGETS,
    "actor.micro_batch_size_per_device_for_update": ("micro_batch", whole),
    "actor.global_batch_size": ("round.mini_batch", whole),
    "actor.ulysses_size": _ulysses,
    "actor.fsdp.enable_cpu_offload": huggingface.offloads("parameters"),
    "rollout.n": ("round.answers", whole),
}
RULES: dict[str, Rule] = {
    **{f"{_ACTORS[0]}{name}": rule for name, rule in _VERL.items()},
    **{f"{_ACTORS[1]}{name}": rule for name, rule in _EASY.items()},
    "config_name": _config_named,
    "data.max_prompt_length": ("lengths.prompt", whole),
    "data.max_response_length": ("lengths.completion", whole),
    "trainer.n_gpus_per_node": ("round.cards", whole),
    "trainer.nnodes": ("round.nodes", whole),
    "algorithm.use_kl_in_reward": _reference,
    "algorithm.use_kl_loss": _reference,
    "algorithm.adv_estimator": ("round.estimator", text),
    "critic.enable": ("round.critic", flag),
}
_IDLE = (
    "rollout.*", "ref.*", "actor.optim.*", "actor.checkpoint.*", "actor.clip_ratio*", "actor.entropy*", "actor.kl_loss*",
    "actor.loss_agg_mode", "actor.ppo_epochs", "actor.shuffle", "actor.grad_clip", "actor.max_grad_norm", "actor.padding_free",
    "actor.fsdp_config.param_offload", "actor.fsdp_config.optimizer_offload", "actor.fsdp_config.grad_offload",
    "actor.fsdp_config.wrap_policy*", "actor.fsdp_config.forward_prefetch",
    "actor.megatron.param_offload", "actor.megatron.optimizer_offload", "actor.megatron.grad_offload", "actor.megatron.seed",

    "actor.megatron.use_mbridge", "actor.megatron.vanilla_mbridge", "actor.megatron.use_remove_padding",
    "actor.offload.*", "actor.use_torch_compile", "actor.use_remove_padding",
    "actor.state_masking", "actor.fsdp_config.use_orig_params", "actor.fsdp_config.seed", "actor.fsdp_config.full_determinism",
    "actor.fsdp_config.entropy*", "actor.fsdp_config.forward_only", "actor.fsdp_config.strategy",
    "actor.rollout_n", "actor.tau_*",
    "actor.loss_scale_factor", "actor.calculate_*", "actor.router_replay.*", "actor.profiler.*", "actor.sum_pi_*",
    "model.hf_config_path", "model.tokenizer_path", "model.fused_kernel_options.*", "model.exclude_modules", "nccl_timeout",
    "model.use_remove_padding", "model.use_shm", "model.external_lib", "model.trust_remote_code", "model.lora_alpha",
    "model.lora.alpha", "model.lora.merge", "model.custom_chat_template", "model.override_config",
    "actor.model.trust_remote_code",
    "actor.model.lora.alpha", "hybrid_engine", "actor.fsdp.enable_full_shard", "actor.fsdp.enable_rank0_init", "reward.*",
    "actor.dynamic_batching", "actor.micro_batch_size_per_device_for_experience", "actor.policy_loss*", "actor.data_loader_seed",
)  # fmt: skip
IDLE = (*(f"{actor}{name}" for actor in _ACTORS for name in _IDLE), "data.*", "trainer.*", "algorithm.*", "reward_model.*",
        "custom_reward_function.*", "ray_*", "*._target_", "sandbox_fusion.*", "reward.*", "reward_manager.*",
        "global_profiler.*", "retriever.*", "env.*",
        "rollout.*", "config_path", "async_training.*", "transfer_queue.*")  # fmt: skip


def finish(settings: Settings) -> None:
    """Its defaults (prompts and answers of 512 tokens, FSDP over all cards, checkpointing on); what keys mean together."""
    because = "verl: its default"
    cards = (settings.get("round.cards") or 8) * (settings.get("round.nodes") or 1)
    if settings.get("round.cards"):  # before what the environment shows
        settings.drop("gpus")
    settings.put("gpus", cards, settings.because.get("round.cards", because))
    prompt, answer = settings.get("lengths.prompt") or 512, settings.get("lengths.completion") or 512
    settings.default("seq", prompt + answer, settings.because.get("lengths.completion", because))
    settings.default("checkpointing", "full", because)
    settings.put("compute_dtype", "bfloat16", because)
    megatron_ = settings.get("framework") == "megatron"
    if not megatron_:
        settings.put("framework", "verl", "the keys of this file")
        settings.put("fsdp", 1, because)
        for name in ("tp", "pp", "cp", "ep", "sp", "vpp"):  # its megatron section stands in the file whatever the strategy is
            settings.drop(f"parallel.{name}")
    _micro_batch(settings, cards)
    if settings.get("reference.on") and megatron_ and not settings.get("adapter.rank"):  # adapters are switched off to score
        settings.put("options.frozen_copies", 1, settings.because["reference.on"])
    if settings.get("adapter.rank"):
        settings.default("adapter.targets", ("all-linear",), "verl: target_modules all-linear")
    huggingface.adapters(settings)
    _critic(settings)
    for name in ("estimator", "critic", "cards", "nodes", "mini_batch", "answers", "by_tokens", "tokens"):
        settings.drop(f"round.{name}")
    settings.drop("micro_batch.all", "reference.on", "lengths.prompt", "lengths.completion")
    if megatron_:
        settings.put("optimizer.distributed", True, "verl, config/engine/megatron.yaml: use_distributed_optimizer True")
        megatron.finish(settings)


def _critic(settings: Settings) -> None:
    """A critic is trained where it is switched on, else where values estimate advantages (trainer/ppo/utils.py, need_critic)."""
    lines = [line for line in settings.unread if line.startswith("critic.")]
    settings.unread[:] = [line for line in settings.unread if line not in lines]
    on = settings.get("round.critic")
    if on is None:
        on = str(settings.get("round.estimator", "gae")).lower().rpartition(".")[2] == "gae"
    if lines and on:
        settings.unread.append("critic.* (a second model trained on the same cards, which is not counted)")
    elif lines:
        settings.idle.append("critic.* (no critic is trained)")


def _micro_batch(settings: Settings, cards: int) -> None:
    """Sequences of a forward pass on a card: as said, of all ranks' number, or what its tokens hold; how many make an update."""
    layout = [settings.get(f"parallel.{name}") or 1 for name in ("tp", "pp", "cp")]
    ranks = max(1, cards // (layout[0] * layout[1] * layout[2]))
    tokens, every = settings.get("round.tokens"), settings.get("micro_batch.all")
    if settings.get("round.by_tokens") and tokens and settings.get("seq"):
        settings.drop("micro_batch")
        held = max(1, tokens // settings.get("seq"))
        settings.put("micro_batch", held, f"{settings.because['round.tokens']}: {tokens} tokens at once")
    elif every:
        settings.put("micro_batch", max(1, every // ranks), f"{settings.because['micro_batch.all']}: of {ranks} ranks together")
    whole_ = (settings.get("round.mini_batch") or 0) * (settings.get("round.answers") or 1)
    micro = settings.get("micro_batch")
    if micro and whole_ and whole_ % (micro * ranks) == 0:
        settings.put("accumulate", whole_ // (micro * ranks), settings.because["round.mini_batch"])
