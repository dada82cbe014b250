"""llama-server's flags that decide memory, with ik_llama.cpp's and Ollama's own. Source: common/arg.cpp, common/common.h."""

from vramcast.serving.engines.options import Option

_ARG = "common/arg.cpp"
ALL_LAYERS = -1
# common/arg.cpp kv_cache_types; q6_0 and q8_kv are ik_llama.cpp's
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1", "q6_0", "q8_kv")

OPTIONS = (
    Option(name="n_gpu_layers", kind="int", least=ALL_LAYERS, about="layers on the GPUs, the output being one; -1: all",
           source=_ARG, flags=("-ngl", "--gpu-layers")),
    Option(name="n_batch", kind="count", about="tokens of a logical batch", source=_ARG, flags=("-b", "--batch-size")),
    Option(name="n_ubatch", kind="count", about="tokens of a micro batch: sizes the compute buffers", source=_ARG,
           flags=("-ub", "--ubatch-size")),
    Option(name="n_parallel", kind="positive", about="sequences served at once", source=_ARG, flags=("-np", "--parallel")),
    Option(name="kv_unified", kind="bool", about="one pool of cells for all sequences", source=_ARG, flags=("-kvu",)),
    Option(name="flash_attn", kind="bool", about="flash attention; on where the device has it", source=_ARG, flags=("-fa",)),
    Option(name="cache_type_k", kind="text", choices=CACHE_TYPES, about="ggml type of cached keys", source=_ARG, flags=("-ctk",)),
    Option(name="cache_type_v", kind="text", choices=CACHE_TYPES, about="ggml type of cached values", source=_ARG,
           flags=("-ctv",)),
    Option(name="swa_full", kind="bool", about="keep the whole context in sliding layers", source=_ARG),
    Option(name="split_mode", kind="text", about="how several GPUs share the model", source=_ARG, flags=("-sm",),
           choices=("layer", "row", "none")),
    Option(name="tensor_split", kind="shares", about="shares of the GPUs, for example 3,1", source=_ARG, flags=("-ts",)),
    Option(name="override_tensor", kind="list", about="pattern=device, first match wins", source=_ARG, flags=("-ot",)),
    Option(name="n_cpu_moe", kind="int", about="layers whose experts stay in host memory", source=_ARG, flags=("-ncmoe",)),
    Option(name="cpu_moe", kind="bool", about="all experts stay in host memory", source=_ARG, flags=("-cmoe",)),
    Option(name="no_kv_offload", kind="bool", about="keep the cache in host memory", source=_ARG, flags=("-nkvo",)),
    Option(name="pipeline_copies", kind="positive", most=64, about="copies of inputs kept for a pipeline of GPUs, set at build",
           source="GGML_SCHED_MAX_COPIES, ggml/CMakeLists.txt"),
    Option(name="no_op_offload", kind="bool", about="compute large batches where the weights are", source=_ARG),
    Option(name="fit", kind="bool", about="reduce what was left open until it fits the card", source="common/fit.cpp",
           flags=("-fit",)),
    Option(name="fit_target_mib", kind="int", about="memory --fit leaves free on each GPU", source="common/fit.cpp",
           flags=("-fitt",)),
    Option(name="fit_context", kind="count", about="context below which --fit does not go", source="common/fit.cpp",
           flags=("-fitc",)),
    Option(name="draft_tokens", kind="int", most=10**4, about="draft tokens kept per sequence in recurrent states", source=_ARG,
           flags=("--draft-max", "--draft")),
    Option(name="mmproj_bytes", kind="bytes", about="size of the vision projector file loaded beside the model", source=_ARG),
    Option(name="draft_model_bytes", kind="bytes", about="size of the draft model file", source=_ARG),
    Option(name="file_bytes", kind="bytes", about="size of the file, when its tensor types are not known", source="ls -l"),
    Option(name="latent_layout", kind="text", about="how the file stores DeepSeek's key-value up-projection",
           choices=("split", "whole", "both"), source="conversion/deepseek.py"),
    Option(name="tensor_types", kind="counts", about="ggml types by number of tensors, as a load log prints them"),
    Option(name="mla", kind="int", most=3, about="ik_llama.cpp: latent attention mode", flags=("-mla",)),
    Option(name="attn_max_batch", kind="int", about="ik_llama.cpp: MiB that expanded keys and values may take", flags=("-amb",)),
    Option(name="fused_moe", kind="bool", about="ik_llama.cpp: up, gate and activation of experts at once", flags=("-fmoe",)),
    Option(name="run_time_repack", kind="bool", about="ik_llama.cpp: repack host weights at load", flags=("-rtr",)),
    Option(name="devices", kind="text", about="what computes",
           choices=("cuda", "vulkan", "rocm", "metal", "none")),
)  # fmt: skip
