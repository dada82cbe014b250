"""Keys of training files that change neither memory nor time of a step: data, logging, losses' coefficients, hubs.

By format, from the dataclasses that the program itself parses its files with; ``tests/reading/flags`` has the whole lists with
their releases. What does change memory and is read by no rule is not here: an answer lists it as unread.
"""

import re

_BY_FORMAT = {
    "huggingface": """
    average_tokens_across_devices batch_eval_metrics ddp_backend ddp_broadcast_buffers ddp_static_graph debug
    enable_jit_checkpoint eval_do_concat_batches eval_use_gather_object ignore_data_skip
    restore_callback_states_from_checkpoint train_sampling_strategy
    """,
    "trl": """
    center_rewards_coefficient delta discopop_tau entropy_coef entropy_coef_delta entropy_coef_max entropy_coef_min
    entropy_target f_alpha_divergence_coef f_divergence_type generation_kwargs importance_sampling_level ld_alpha
    loss_weights multi_objective_aggregation normalize_advantages off_policy_mask_threshold router_aux_loss_coef
    sapo_temperature_neg sapo_temperature_pos top_entropy_quantile train_sampling_strategy use_adaptive_entropy
    use_bias_correction_kl use_weighting vespo_k_neg vespo_k_pos vespo_lambda_neg vespo_lambda_pos
    """,
    "axolotl": """
    adaptive_max_tokens advantage_estimator alignment_coef axolotl_config_path bench_dataset bench_split bos_token
    capabilities ce_coef center_rewards_coefficient cpo_alpha default_system_message device dion_lr dion_momentum
    diversity_coef do_bench_eval do_causal_lm_eval dpo_label_smoothing dpo_loss_type dpo_loss_weights dpo_use_weighting
    eaft_alpha eaft_k ebft embedding_lr embedding_lr_scale end eot_tokens feature_layers fix_untrained_tokens
    gc_collect_steps generate_samples generation_do_sample generation_max_new_tokens generation_prompt_ratio
    generation_temperature generation_top_k generation_top_p gradio_max_new_tokens gradio_server_name gradio_server_port
    gradio_share gradio_temperature gradio_title gt_length_multiplier hf_mlflow_log_artifacts image_resize_algorithm
    jagged_restart_anneal_steps jagged_restart_steps jagged_restart_warmup_steps kto_desirable_weight
    kto_undesirable_weight lora_alpha_pattern lr lr_div_factor lr_groups lr_quadratic_warmup max_prompt_len
    mean_resizing_embeddings merge_lora merge_method min_completion_prefix min_sample_len mode modules
    n_samples_per_prompt name num_dataset_shards_to_save num_generation_samples orpo_alpha otel_metrics_host
    otel_metrics_port peft_init_lora_weights pose_max_context_len pose_num_chunks pose_split_on_token_ids
    preprocess_iterable pretrain_multipack_attn pretrain_multipack_buffer_size pretraining_sample_concatenation
    process_reward_model processor_kwargs processor_type profiler_steps_start qgalore_cos_threshold qgalore_gamma_proj
    qgalore_proj_group_size qgalore_proj_type qgalore_queue_size qgalore_scale qgalore_update_proj_gap ray_num_workers
    ray_run_name reinit_weights resources_per_worker rl_beta rl_coef role role_boundaries save simpo_gamma start
    streaming_multipack_buffer_size stride torchdistx_path total_num_tokens total_supervised_tokens trainer_cls unk_token
    use_comet use_eaft use_mlflow use_otel_metrics use_pose use_trackio use_whitening
    """,
    "llama_factory": """
    asft_alpha buffer_size data_shared_file_system default_system disable_shuffling eaft_alpha enable_torch_profiler
    eval_num_beams eval_on_each_dataset hf_hub_token init_special_tokens ld_alpha master_addr master_port module_dropout
    ms_hub_token new_special_tokens_config om_hub_token preprocessing_batch_size preserve_thinking profile_modules
    profiler_active_steps profiler_output_dir profiler_profile_memory profiler_record_shapes profiler_repeat
    profiler_wait_steps profiler_warmup_steps profiler_with_stack use_asft_loss use_audio_in_video use_dft_loss
    use_eaft_loss
    """,
}
_BESIDE = {
    "axolotl": ("huggingface", "trl"),
    "llama_factory": ("huggingface",),
    "ms_swift": ("huggingface", "trl"),
    "huggingface": ("trl",),
}


# Of any program's file, by the last part of a key: data, schedule, logging and names, as TrainingArguments has them.
_SHARED = frozenset(
    """
    lora_alpha bias use_rslora task_type trust_remote_code revision train_file eval_file validation_file test_file train_path
    train_files validation_files val_file train_data eval_data data_dir dataset_format dataset_name max_samples num_workers seed
    data_seed shuffle_seed shuffle project project_name run_name entity tags report_to logging_steps save_steps eval_steps
    save_strategy save_total_limit output_dir logging_dir learning_rate lr weight_decay warmup_ratio warmup_steps
    lr_scheduler_type num_train_epochs num_epochs epochs max_steps max_grad_norm adam_beta1 adam_beta2 adam_epsilon betas eps
    validation_data schema_version early_stopping_patience max_train_samples max_eval_samples setup_chat_format experiment_name
    eval_dataset_split lora_bias tracking_uri hf_token wandb_project wandb_entity wandb_api_key wandb_run_name hf_repo_id
    eval_dataset_id_or_path bnb_4bit_compute_dtype val_split val_ratio test_ratio train_ratio val_size log_level cache_dir
    label_smoothing chat_template system_prompt text_field push_to_hub hub_model_id temperature top_p top_k dataloader_num_workers
    """.split()  # noqa: SIM905
)


_SAMPLES = frozenset(
    "generation generate sampling sampler inference rollout eval evaluation decoding sampling_params gen_kwargs vllm grpo".split()  # noqa: SIM905
)


def of_quantised_weights(parts: list[str]) -> bool:
    """Whether a key is the type that quantised weights are multiplied in, which no buffer of the step has."""
    return parts[-1] == "compute_dtype" and any(re.search("quant|bnb|bitsandbytes", section) for section in parts[:-1])


def idle_anywhere(key: str) -> bool:
    """Whether a key of any program's file costs nothing, by its last part."""
    parts = key.lower().replace("-", "_").split(".")
    if parts[-1] == "top_k" and len(parts) > 1 and not _SAMPLES & set(parts[:-1]):  # of a model: its active experts
        return False
    return (
        parts[-1] in _SHARED
        or of_quantised_weights(parts)
        or (parts[-1] == "alpha" and any("lora" in part or "peft" in part for part in parts[:-1]))
    )


def idle_keys(form: str) -> frozenset[str]:
    """The idle keys of a format and of those whose arguments it takes too."""
    return frozenset(word for name in (form, *_BESIDE.get(form, ())) for word in _BY_FORMAT.get(name, "").split())
