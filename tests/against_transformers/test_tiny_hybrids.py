"""Small random hybrids, encoders and models with towers, built by transformers, against our reading of the same config.

Covers shapes that no published config uses yet: odd head counts, switched biases, patterns of layers, other merges and patches.
"""

import random
from typing import Any

import pytest
from loaded import summary

from vramcast.models.families import read_config

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

LLAMA = {"vocab_size": [97, 128], "hidden_size": [64], "intermediate_size": [80, 96], "num_hidden_layers": [5, 7],
         "num_attention_heads": [4], "num_key_value_heads": [2, 4], "tie_word_embeddings": [True, False],
         "pad_token_id": [0], "bos_token_id": [1], "eos_token_id": [2]}  # fmt: skip
MAMBA = {"vocab_size": [97], "hidden_size": [64], "num_hidden_layers": [3], "state_size": [8, 16], "conv_kernel": [3, 4],
         "use_bias": [True, False], "use_conv_bias": [True, False], "expand": [2], "tie_word_embeddings": [True,
         False]}  # fmt: skip
MIXED = {"mamba_d_state": [8, 16], "mamba_d_conv": [3, 4], "mamba_expand": [2], "mamba_n_heads": [8], "mamba_d_head": [16],
         "mamba_n_groups": [1, 2], "mamba_conv_bias": [True, False], "mamba_proj_bias": [True, False]}  # fmt: skip
DELTA = {**LLAMA, "head_dim": [16, 32], "linear_num_key_heads": [2], "linear_num_value_heads": [2, 4],
    "linear_key_head_dim": [8],
         "linear_value_head_dim": [12], "linear_conv_kernel_dim": [3, 4], "attention_bias": [True, False],
         "num_experts": [6], "num_experts_per_tok": [2], "moe_intermediate_size": [24],
         "shared_expert_intermediate_size": [40]}  # fmt: skip
CLIP = {"model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 2, "image_size": 28, "patch_size": 7}  # fmt: skip
SIGLIP = {**CLIP, "model_type": "siglip_vision_model"}
PIXTRAL = {**CLIP, "model_type": "pixtral"}
TEXT = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
MOE = {**TEXT, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "decoder_sparse_step": 1}
QWEN_EYE = {"depth": 3, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2,
            "temporal_patch_size": 2, "out_hidden_size": 64}  # fmt: skip
DEEP_EYE = {**QWEN_EYE, "deepstack_visual_indexes": [0, 2], "num_position_embeddings": 36}
ENCODER = {"vocab_size": [97], "hidden_size": [64], "num_hidden_layers": [3], "num_attention_heads": [4],
           "intermediate_size": [80], "max_position_embeddings": [40], "type_vocab_size": [1, 2]}  # fmt: skip
SEQ = {"vocab_size": [97], "d_model": [64], "encoder_layers": [2], "decoder_layers": [3], "encoder_attention_heads": [4],
       "decoder_attention_heads": [2], "encoder_ffn_dim": [80], "decoder_ffn_dim": [96], "max_position_embeddings": [40],
       "pad_token_id": [1], "bos_token_id": [0], "eos_token_id": [2], "decoder_start_token_id": [2]}  # fmt: skip
T5 = {"vocab_size": [97], "d_model": [64], "d_kv": [8, 16], "d_ff": [80], "num_heads": [4], "num_layers": [2],
      "num_decoder_layers": [3], "feed_forward_proj": ["relu", "gated-gelu"],
      "relative_attention_num_buckets": [8]}  # fmt: skip

CASES: dict[str, tuple[str, dict[str, list[Any]]]] = {
    "mamba": ("MambaForCausalLM", MAMBA),
    "falcon_mamba": ("FalconMambaForCausalLM", MAMBA),
    "mamba2": ("Mamba2ForCausalLM", {**MAMBA, "num_heads": [8], "head_dim": [16], "n_groups": [1, 2]}),
    "jamba": ("JambaForCausalLM", {**LLAMA, "num_hidden_layers": [8], "num_experts": [1, 4], "num_experts_per_tok": [1],
              "attn_layer_period": [4], "attn_layer_offset": [1], "expert_layer_period": [2, 3], "mamba_d_state": [8],
              "mamba_d_conv": [3], "mamba_dt_rank": ["auto", 5], "mamba_conv_bias": [True, False]}),
    # Without a tied head transformers 5 unties the shared blocks as well: no such model was published.
    "zamba": ("ZambaForCausalLM", {**LLAMA, "tie_word_embeddings": [True], "num_hidden_layers": [9],
        "attn_layer_period": [3], "attn_layer_offset": [1],
              "n_mamba_heads": [2], "mamba_dt_rank": ["auto"], "mamba_d_state": [8]}),
    "zamba2": ("Zamba2ForCausalLM", {**LLAMA, "tie_word_embeddings": [True], "num_hidden_layers": [7],
        "n_mamba_heads": [8], "mamba_ngroups": [1, 2],
               "mamba_d_state": [8], "num_mem_blocks": [1, 2], "use_shared_attention_adapter": [True, False],
               "adapter_rank": [4],
               "add_bias_linear": [True, False],
               "layers_block_type": [["mamba", "hybrid", "mamba", "hybrid", "mamba", "hybrid", "mamba"]]}),
    "bamba": ("BambaForCausalLM", {**LLAMA, **MIXED, "attn_layer_indices": [[1, 3], [2]], "mlp_bias": [True, False]}),
    "granitemoehybrid": ("GraniteMoeHybridForCausalLM", {**LLAMA, **MIXED, "num_hidden_layers": [4],
        "num_local_experts": [0, 4],
                         "num_experts_per_tok": [2], "shared_intermediate_size": [40],
                         "layer_types": [["mamba", "attention", "mamba", "mamba"]]}),
    "falcon_h1": ("FalconH1ForCausalLM", {**LLAMA, **MIXED, "mamba_d_ssm": [128], "mamba_rms_norm": [True, False],
                  "projectors_bias": [True, False], "attention_bias": [True, False]}),
    "nemotron_h": ("NemotronHForCausalLM", {**LLAMA, "hybrid_override_pattern": ["M*E-M", "ME*E"], "mamba_num_heads": [4, 8],
                   "mamba_head_dim": [8, 16], "ssm_state_size": [8], "n_groups": [1, 2], "head_dim": [16],
                   "n_routed_experts": [4],
                   "num_experts_per_tok": [2], "moe_intermediate_size": [24], "moe_shared_expert_intermediate_size": [40],
                   "moe_latent_size": [None, 16], "use_bias": [True, False], "mlp_bias": [True, False]}),
    "lfm2": ("Lfm2ForCausalLM", {**LLAMA, "full_attn_idxs": [[1, 3]], "conv_bias": [True, False], "conv_L_cache": [3, 4],
             "block_auto_adjust_ff_dim": [True, False], "block_multiple_of": [16], "block_ffn_dim_multiplier": [1.0, 1.5]}),
    "lfm2_moe": ("Lfm2MoeForCausalLM", {**LLAMA, "num_hidden_layers": [4], "layer_types": [["conv", "full_attention"] * 2],
                 "num_dense_layers": [1, 2], "num_experts": [4], "num_experts_per_tok": [2], "moe_intermediate_size": [24]}),
    "qwen3_next": ("Qwen3NextForCausalLM", {**DELTA, "mlp_only_layers": [[], [1]], "decoder_sparse_step": [1, 2]}),
    "qwen3_5_text": ("Qwen3_5ForCausalLM", {k: v for k, v in DELTA.items() if "expert" not in k and "moe" not in k}),
    "qwen3_5_moe_text": ("Qwen3_5MoeForCausalLM", DELTA),
    "kimi_linear": ("KimiLinearForCausalLM", {**LLAMA, "num_key_value_heads": [4], "kv_lora_rank": [20], "qk_nope_head_dim": [12],
                    "qk_rope_head_dim": [8], "v_head_dim": [16], "num_local_experts": [6], "num_experts_per_tok": [2],
                    "moe_intermediate_size": [24], "n_shared_experts": [1, 2], "linear_head_dim": [8, 16],
                    "linear_num_heads": [2, 4], "tie_word_embeddings": [False]}),
    "minimax": ("MiniMaxForCausalLM", {**LLAMA, "num_local_experts": [4], "num_experts_per_tok": [2], "head_dim": [16, 32]}),
    "bert": ("BertForMaskedLM", ENCODER),
    "roberta": ("RobertaForSequenceClassification", {**ENCODER, "num_labels": [2]}),
    "xlm-roberta": ("XLMRobertaModel", ENCODER),
    "distilbert": ("DistilBertForMaskedLM", {"vocab_size": [97], "dim": [64], "hidden_dim": [80], "n_layers": [3],
        "n_heads": [4]}),
    "modernbert": ("ModernBertForMaskedLM", {**ENCODER, "cls_token_id": [1], "sep_token_id": [2], "pad_token_id": [0],
                   "attention_bias": [True, False], "mlp_bias": [True, False], "norm_bias": [True, False], "bos_token_id": [1],
                   "eos_token_id": [2], "global_attn_every_n_layers": [2, 3]}),
    "t5": ("T5ForConditionalGeneration", T5),
    "mt5": ("MT5ForConditionalGeneration", T5),
    "umt5": ("UMT5ForConditionalGeneration", T5),
    "bart": ("BartForConditionalGeneration", SEQ),
    "mbart": ("MBartForConditionalGeneration", SEQ),
    "marian": ("MarianMTModel", {**SEQ, "pad_token_id": [96]}),
    "whisper": ("WhisperForConditionalGeneration", {**SEQ, "num_mel_bins": [20], "max_source_positions": [30],
                "max_target_positions": [25], "pad_token_id": [0]}),
    "llava": ("LlavaForConditionalGeneration", {"vision_config": [CLIP, SIGLIP, PIXTRAL], "text_config": [
              {**TEXT, "model_type": "llama"}, {**TEXT, "model_type": "qwen2"}], "tie_word_embeddings": [True, False]}),
    "llava_next": ("LlavaNextForConditionalGeneration", {"vision_config": [CLIP], "text_config": [{**TEXT,
        "model_type": "mistral"}]}),
    "mistral3": ("Mistral3ForConditionalGeneration", {"vision_config": [PIXTRAL], "text_config": [{**TEXT,
        "model_type": "mistral"}],
                 "spatial_merge_size": [2, 4], "multimodal_projector_bias": [True, False], "tie_word_embeddings": [False]}),
    "gemma3": ("Gemma3ForConditionalGeneration", {"vision_config": [{**SIGLIP, "vision_use_head": False}],
               "text_config": [{**TEXT, "model_type": "gemma3_text", "head_dim": 16}], "mm_tokens_per_image": [4]}),
    "paligemma": ("PaliGemmaForConditionalGeneration", {"vision_config": [{**SIGLIP, "vision_use_head": False}],
                  "text_config": [{**TEXT, "model_type": "gemma", "head_dim": 16}], "projection_dim": [64]}),
    "internvl": ("InternVLForConditionalGeneration", {"text_config": [{**TEXT, "model_type": "qwen2"}], "vision_config": [
                 {**CLIP, "model_type": "internvl_vision", "image_size": [28, 28], "patch_size": [7, 7]},
                 {**CLIP, "model_type": "internvl_vision", "image_size": [28, 28], "patch_size": [7, 7], "use_qk_norm": True}]}),
    "smolvlm": ("SmolVLMForConditionalGeneration", {"text_config": [{**TEXT, "model_type": "llama"}], "scale_factor": [2, 4],
                "vision_config": [{**CLIP, "model_type": "smolvlm_vision"}], "tie_word_embeddings": [True, False]}),
    "idefics3": ("Idefics3ForConditionalGeneration", {"text_config": [{**TEXT, "model_type": "llama"}], "scale_factor": [2],
                 "vision_config": [{**CLIP, "model_type": "idefics3_vision"}]}),
    "qwen2_vl": ("Qwen2VLForConditionalGeneration", {"text_config": [{**TEXT, "rope_scaling": {"type": "mrope",
        "mrope_section": [2, 3, 3]}}],
                 "vision_config": [{"depth": 2, "embed_dim": 32, "num_heads": 2, "mlp_ratio": 3, "patch_size": 4,
                 "hidden_size": 64}]}),
    "qwen2_5_vl": ("Qwen2_5_VLForConditionalGeneration", {"text_config": [TEXT], "vision_config": [QWEN_EYE]}),
    "qwen3_vl": ("Qwen3VLForConditionalGeneration", {"text_config": [{**TEXT, "head_dim": 16}], "vision_config": [DEEP_EYE]}),
    "qwen3_vl_moe": ("Qwen3VLMoeForConditionalGeneration", {"text_config": [{**MOE, "head_dim": 16}],
        "vision_config": [DEEP_EYE]}),
    "qwen3_5": ("Qwen3_5ForConditionalGeneration", {"text_config": [TEXT], "vision_config": [{**QWEN_EYE,
        "num_position_embeddings": 36}],
                "tie_word_embeddings": [True, False]}),
    "glm4v": ("Glm4vForConditionalGeneration", {"text_config": [TEXT], "vision_config": [
              {**QWEN_EYE, "image_size": 16, "attention_bias": False}, {**QWEN_EYE, "image_size": 8, "attention_bias": True}]}),
    "mllama": ("MllamaForConditionalGeneration", {"text_config": [{**TEXT, "cross_attention_layers": [1, 3]}],
        "vision_config": [
               {**CLIP, "model_type": "mllama_vision_model", "attention_heads": 2, "num_global_layers": 2, "max_num_tiles": 2,
                "supported_aspect_ratios": [[1, 1], [1, 2]], "intermediate_layers_indices": [0, 1], "vision_output_dim": 96}]}),
    "llama4": ("Llama4ForConditionalGeneration", {"text_config": [{**TEXT, "model_type": "llama4_text", "num_local_experts": 4,
               "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "intermediate_size_mlp": 72, "head_dim": 16}],
               "vision_config": [{**CLIP, "model_type": "llama4_vision_model", "vision_output_dim": 40,
               "projector_input_dim": 40,
                                  "projector_output_dim": 40, "intermediate_size": 128}]}),
    "opt": ("OPTForCausalLM", {"vocab_size": [97], "hidden_size": [64], "num_hidden_layers": [3], "num_attention_heads": [4],
            "ffn_dim": [80], "word_embed_proj_dim": [32, 64], "do_layer_norm_before": [True, False], "pad_token_id": [0]}),
    "deberta-v2": ("DebertaV2ForMaskedLM", {**ENCODER, "type_vocab_size": [0, 2], "relative_attention": [True, False],
                   "position_buckets": [-1, 16], "norm_rel_ebd": ["none", "layer_norm"], "share_att_key": [True, False],
                   "pos_att_type": [["p2c", "c2p"], ["c2p"]], "position_biased_input": [True, False],
                   "max_relative_positions": [-1, 12], "embedding_size": [32, 64]}),
    "deberta": ("DebertaForMaskedLM", {**ENCODER, "type_vocab_size": [0], "relative_attention": [True, False],
                "pos_att_type": [["p2c", "c2p"], ["p2c"]], "position_biased_input": [True, False]}),
    "albert": ("AlbertForMaskedLM", {**ENCODER, "embedding_size": [32], "num_hidden_groups": [1, 3], "inner_group_num": [1]}),
    "m2m_100": ("M2M100ForConditionalGeneration", SEQ),
    "pegasus": ("PegasusForConditionalGeneration", SEQ),
    "blenderbot": ("BlenderbotForConditionalGeneration", SEQ),
    "recurrent_gemma": ("RecurrentGemmaForCausalLM", {**LLAMA, "lru_width": [None, 96], "conv1d_width": [3, 4],
                        "block_types": [["recurrent", "attention"], ["recurrent", "recurrent", "attention"]],
                        "tie_word_embeddings": [True]}),
    "rwkv": ("RwkvForCausalLM", {"vocab_size": [97], "hidden_size": [64], "num_hidden_layers": [3], "intermediate_size": [None,
             96], "attention_hidden_size": [None, 48], "tie_word_embeddings": [True, False]}),
    "bailing_hybrid": ("BailingHybridForCausalLM", {**LLAMA, "num_hidden_layers": [6], "num_key_value_heads": [4],
                       "head_dim": [16], "kv_lora_rank": [20], "qk_nope_head_dim": [12], "qk_rope_head_dim": [8],
                       "v_head_dim": [16], "num_experts": [6], "num_experts_per_token": [2], "moe_intermediate_size": [24],
                       "num_shared_experts": [1, 2], "layer_group_size": [3, 6], "first_k_dense_replace": [1, 2],
                       "num_expert_group": [2], "topk_group": [1], "tie_word_embeddings": [False]}),
    "llava_onevision": ("LlavaOnevisionForConditionalGeneration", {"vision_config": [SIGLIP, CLIP], "text_config": [{**TEXT,
                        "model_type": "qwen2"}], "tie_word_embeddings": [True, False]}),
    "vipllava": ("VipLlavaForConditionalGeneration", {"vision_config": [CLIP], "text_config": [{**TEXT, "model_type": "llama"}],
                 "vision_feature_layers": [[-2, 1], [0, 1, 2]]}),
    "lfm2_vl": ("Lfm2VlForConditionalGeneration", {"vision_config": [{**CLIP, "model_type": "siglip2_vision_model",
                "num_patches": 16}], "text_config": [{**TEXT, "model_type": "lfm2", "full_attn_idxs": [1]}],
                "projector_use_layernorm": [True, False], "projector_hidden_size": [48], "projector_bias": [True, False],
                "downsample_factor": [2, 3]}),
    "aya_vision": ("AyaVisionForConditionalGeneration", {"vision_config": [SIGLIP], "text_config": [{**TEXT,
                   "model_type": "cohere2"}], "alignment_intermediate_size": [48, 96], "downsample_factor": [2]}),
    "glm_ocr": ("GlmOcrForConditionalGeneration", {"text_config": [TEXT], "vision_config": [
                {**QWEN_EYE, "attention_bias": True}, {**QWEN_EYE, "attention_bias": False}]}),
    "voxtral": ("VoxtralForConditionalGeneration", {"text_config": [{**TEXT, "model_type": "llama"}], "audio_config": [
                {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
                "num_mel_bins": 20}]}),
    "qwen2_audio": ("Qwen2AudioForConditionalGeneration", {"text_config": [{**TEXT, "model_type": "qwen2"}], "audio_config": [
                    {"d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 48,
                    "num_mel_bins": 20}]}),
}  # fmt: skip


# Three convolutions in the checkpoints, one here; the parameters are the same.
OTHER_NAMES = {"kimi_linear", "bailing_hybrid"}


def built(name: str, model_type: str, fields: dict[str, Any]) -> Any:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    cls = getattr(transformers, name, None)
    if cls is None:
        pytest.skip("no such class in this transformers")
    with torch.device("meta"):
        return cls(transformers.CONFIG_MAPPING[model_type](**fields))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model_type", CASES)
def test_equals_the_built_model(model_type: str, seed: int) -> None:
    name, choices = CASES[model_type]
    chance = random.Random(f"{model_type} {seed}")
    fields = {field: chance.choice(values) for field, values in choices.items()}
    model = built(name, model_type, {k: dict(v) if isinstance(v, dict) else v for k, v in fields.items()})
    ours = summary(read_config({"architectures": [name], "model_type": model_type, **fields}))
    sizes = [(p.numel(), p.requires_grad) for p in model.parameters()]
    assert ours["trainable"] == sum(n for n, trained in sizes if trained)
    assert ours["frozen"] == sum(n for n, trained in sizes if not trained)
    if model_type not in OTHER_NAMES:
        assert ours["tensors"] == len(sizes)
