# after ray-project/ray and vllm examples: keyword arguments in a dictionary
from vllm import AsyncEngineArgs, AsyncLLMEngine

options = {"max_num_seqs": 64, "enable_prefix_caching": False}
engine = AsyncLLMEngine.from_engine_args(AsyncEngineArgs(model="Qwen/Qwen3-8B", quantization="fp8", **options))
