"""Flags of transformers (and of loaders like it) that decide memory."""

from vramcast.serving.engines.options import Option

LOADERS = ("transformers", "autoawq", "exllama", "gptq_for_llama")
ATTENTIONS = ("eager", "sdpa", "flash_attention_2")

OPTIONS = (
    Option(name="attn_implementation", kind="text", about="attention kernel", choices=ATTENTIONS, source="modeling_utils.py"),
    Option(
        name="device_map",
        kind="text",
        choices=("auto", "balanced", "balanced_low_0", "sequential"),
        about="auto places layers over all cards",
        source="accelerate",
    ),
    Option(
        name="prefill_chunk_size",
        kind="positive",
        about="tokens of the prompt processed at once",
        source="generation/utils.py",
    ),
    Option(
        name="num_beams",
        kind="positive",
        about="beams of each sequence (generate): each has rows and a cache of its own",
        source="generation/utils.py, _beam_search",
    ),
    Option(name="cache_implementation", kind="text", about="dynamic or static", choices=("dynamic", "static")),
    Option(name="loader", kind="text", about="the program that allocates: itself or an older quantised loader", choices=LOADERS),
)
