"""What engines and frameworks are called by those who make them."""

_NAMES = {
    "vllm": "vLLM", "sglang": "SGLang", "tensorrt_llm": "TensorRT-LLM", "tgi": "TGI", "lmdeploy": "LMDeploy",
    "llama_cpp": "llama.cpp", "ollama": "Ollama", "hf_trainer": "HF Trainer", "deepspeed": "DeepSpeed",
    "megatron": "Megatron-LM", "unsloth": "Unsloth", "llama_factory": "LLaMA-Factory", "trl": "TRL", "ms_swift": "ms-swift",
    "llm_foundry": "LLM Foundry", "nemo_automodel": "NeMo AutoModel", "nemo_rl": "NeMo RL", "litgpt": "LitGPT",
    "colossalai": "Colossal-AI", "pytorch": "PyTorch", "megatron_bridge": "Megatron-Bridge", "openrlhf": "OpenRLHF",
    "megatron_deepspeed": "Megatron-DeepSpeed", "prime_rl": "prime-rl", "llama_recipes": "llama-recipes", "xtuner": "XTuner",
    "peft_bench": "PEFT benchmark", "qwen_finetune": "Qwen finetune.py",
}  # fmt: skip


def program_name(name: str) -> str:
    """``vLLM`` for ``vllm``; a name that is not in the table stands as it is."""
    return _NAMES.get(name, name)
