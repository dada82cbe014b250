"""Which module reads which ``model_type``. Importing this imports no family."""

_FAMILIES: dict[str, str] = {
    "llama": """
        llama mistral ministral ministral3 qwen2 qwen3 phi3 granite granite_swa smollm3 seed_oss arcee helium olmo olmo2 olmo3
        cohere cohere2 glm glm4 ernie4_5 exaone4 starcoder2 stablelm nemotron apertus bitnet hunyuan_v1_dense internlm3 cwm jais2
        gemma gemma2 gemma3_text vaultgemma iquestcoder hyperclovax nanochat diffllama doge Yi aquila xverse mimo orion internlm
        phi Dream voxtral_realtime_text molmo2_text
    """,
    "mixture": """
        mixtral qwen2_moe qwen3_moe mellum olmoe flex_olmo phimoe ernie4_5_moe hunyuan_v1_moe glm4_moe deepseek dots1 solar_open
        exaone_moe hy_v3 minimax_m2 afmoe laguna mimo_v2_flash flint grok-1 arctic kolibri1 cohere2_moe step3p7_text minicpm
    """,
    "latent": "deepseek_v2 deepseek_v3 deepseek_v32 glm_moe_dsa glm4_moe_lite minicpm3 youtu axk1 mistral4 hy_v4 dots3_note_text",
    "deepseek_v4": "deepseek_v4",
    "gemma_shared": "gemma3n_text gemma4_text gemma4_unified_text",
    "renamed": "baichuan qwen chatglm internlm2 exaone phi3small",
    "ling": "bailing_moe bailing_moe_v2",
    "openelm": "openelm",
    "longcat": "longcat_flash",
    "nemotron_nas": "nemotron-nas",
    "classic": """
        kclgpt
        gpt2 openai-gpt gpt_bigcode gpt_neo gptj codegen gpt_neox opt xglm bloom mpt falcon phi-msft persimmon ctrl biogpt
    """,
    "minimax_m3": "minimax_m3_vl_text minimax_m3_vl",
    "stacked": "gpt_oss llama4_text granitemoe granitemoeshared granitemoe_swa aria_text dbrx",
    "mamba": "mamba mamba2 falcon_mamba",
    "jamba": "jamba",
    "zamba": "zamba zamba2",
    "bamba": "bamba granitemoehybrid falcon_h1",
    "nemotron_h": "nemotron_h",
    "lfm2": "lfm2 lfm2_moe lfm3",
    "olmo_hybrid": "olmo_hybrid",
    "jetmoe": "jetmoe",
    "xlstm": "xlstm",
    "modernbert_decoder": "modernbert-decoder",
    "fuyu": "fuyu",
    "idefics": "idefics",
    "hunyuan_vl": "hunyuan_vl",
    "dia": "dia",
    "gated_delta": "qwen3_next qwen3_5_text qwen3_5_moe_text",
    "minimax": "minimax",
    "llava": """
        llava llava_next llava_next_video llava_onevision vipllava video_llava mistral3 lighton_ocr gemma3 shieldgemma2 paligemma
        aya_vision cohere2_vision deepseek_vl lfm2_vl paddleocr_vl aria video_llama_3
    """,
    "gemma4": "gemma3n gemma4 gemma4_unified",
    "llama4": "llama4",
    "mllama": "mllama mllama_text_model",
    "kimi_k25": "kimi_k25 kimi_vl",
    "bert": """
        bert roberta xlm-roberta camembert data2vec-text distilbert electra albert mpnet longformer megatron-bert nomic_bert gte
        deberta deberta-v2 ernie ibert roberta-prelayernorm xlm-roberta-xl layoutlm
    """,
    "t5": "t5 mt5 umt5",
    "seq2seq": "bart mbart marian whisper mvp plbart pegasus m2m_100 blenderbot blenderbot-small",
    "audio": "qwen2_audio qwen3_asr voxtral audioflamingo3 musicflamingo",
    "rotary_audio": "glmasr voxtral_realtime",
    "blip2": "blip-2 instructblip instructblipvideo",
    "molmo2": "molmo2",
    "omni": "qwen2_5_omni qwen2_5_omni_thinker qwen3_omni_moe qwen3_omni_moe_thinker",
    "internvl": "internvl internvl_chat qianfan_ocr",
    "idefics3": "idefics3 smolvlm",
    "kimi_linear": "kimi_linear bailing_hybrid",
    "modernbert": "modernbert",
    "step3p7": "step3p7",
    "minicpmv": "minicpmv",
    "phi3_v": "phi3_v",
    "llava_original": "llava_llama llava_mistral llava_mixtral llava_qwen logics multi_modality",
    "molmo": "molmo",
    "rwkv5": "rwkv rwkv5",
    "recurrent_gemma": "recurrent_gemma",
    "got_ocr2": "got_ocr2 deepseek_vl_hybrid",
    "ernie_vl": "ernie4_5_vl_moe",
    "granite_speech": "granite_speech granite_speech_plus",
    "phi4_multimodal": "phi4_multimodal phi4mm",
    "idefics2": "idefics2",
    "deepseek_vl2": "deepseek_vl_v2",
    "cogvlm": "cogvlm",
    "llada": "llada",
    "eagle": "eagle medusa",
    "rwkv67": "rwkv6 rwkv7",
    "ovis2": "ovis2",
    "qwen_vl": """
        qwen2_vl qwen2_5_vl qwen3_vl qwen3_vl_moe qwen3_5 qwen3_5_moe glm4v glm4v_moe glm46v glm_ocr exaone4_5
        hyperclovax_vision_v2
    """,
}

# Remote-code names of a class that is registered under another.
ALIASES: dict[str, str] = {
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "deepseek_ref": "deepseek_v4",
    "gpt-sw3": "gpt2",
    "olmo_1124": "olmo2",
    "skywork": "llama",
    "stablelm_epoch": "stablelm",
    "minimax_m3": "minimax_m3_vl_text",
    "gpt_neox_reward_model": "gpt_neox",
    "hunyuan": "hunyuan_v1_moe",
    "kimi_k2": "deepseek_v3",
    "new": "gte",
    "moss": "codegen",
    "DeepseekOCR": "deepseek_vl_v2",
    "codeshell": "kclgpt",
    "ernie4_5_moe_vl": "ernie4_5_vl_moe",
}

MODULES: dict[str, str] = {kind: module for module, kinds in _FAMILIES.items() for kind in kinds.split()}


def known_types() -> tuple[str, ...]:
    """Every ``model_type`` that a module reads, and the remote names of the same classes."""
    return (*MODULES, *ALIASES)


# Modules that read the head of a task themselves.
OWN_HEADS = {"bert", "eagle", "modernbert", "modernbert_decoder", "seq2seq", "t5"}

# Remote-code classes called after their type that are whole language models, not the body of one.
WHOLE = {"ChatGLMModel", "InternVLChatModel", "LlavaLlamaModel", "Qwen2_5OmniModel", "Qwen3OmniMoeModel"}

# Classes that decide against, or in the absence of, a ``model_type``.
ARCHITECTURES: dict[str, str] = {
    "Mistral3ForConditionalGeneration": "mistral3",
    "Glm4MoeForCausalLM": "glm4_moe",
    **dict.fromkeys(
        (
            "LlamaForCausalLMEagle",
            "EagleLlamaForCausalLM",
            "LlamaForCausalLMEagle3",
            "Eagle3LlamaForCausalLM",
            "Eagle3Speculator",
            "LlamaForCausalLMEagle3MTP",
        ),
        "eagle",
    ),
    "CogVLMVideoForCausalLM": "cogvlm",
    "CogVLMForCausalLM": "cogvlm",
}
