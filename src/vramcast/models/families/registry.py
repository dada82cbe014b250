"""Which module reads which ``model_type``, as the rows of models/classes say; and how architectures decide. Imports no family."""

from vramcast.models.classes import aliased, readers

MODULES = readers()
ALIASES = aliased()

# Modules that read the head of a task themselves.
OWN_HEADS = {"bert", "block_draft", "derived", "eagle", "encoder_decoder", "modernbert", "modernbert_decoder", "seq2seq", "t5"}

# Remote-code classes called after their type that are whole language models, not the body of one.
WHOLE = {"ChatGLMModel", "InternVLChatModel", "LlavaLlamaModel", "Qwen2_5OmniModel", "Qwen3OmniMoeModel"}

# Classes whose published configs are also of a form before transformers took them in (spellings); None has no name yet.
FORMER = frozenset({None, "florence2"})

# Code beside checkpoints whose configs are read in other words (remote_spellings).
REMOTE = frozenset({"videollama3_qwen2", "glmasr", "vibevoice", "vibepod", "minimind"})

# Classes that decide against, or in the absence of, a ``model_type``.
ARCHITECTURES: dict[str, str] = {
    "Mistral3ForConditionalGeneration": "mistral3",
    "Glm4MoeForCausalLM": "glm4_moe",
    "QWenLMHeadModel": "qwen",
    **dict.fromkeys(
        (
            "LlamaForCausalLMEagle",
            "EagleLlamaForCausalLM",
            "LlamaForCausalLMEagle3",
            "Eagle3LlamaForCausalLM",
            "Eagle3Speculator",
            "Eagle3DraftModel",
            "LlamaForCausalLMEagle3MTP",
        ),
        "eagle",
    ),
    **dict.fromkeys(("DFlashDraftModel", "DSparkDraftModel", "DominoDraftModel"), "block_draft"),
    "CogVLMVideoForCausalLM": "cogvlm",
    "CogVLMForCausalLM": "cogvlm",
    "LLaVAOneVision1_5_ForConditionalGeneration": "llavaonevision1_5",
}
