# after NVIDIA/TensorRT-LLM, examples/llm-api
from tensorrt_llm import LLM

llm = LLM(model="nvidia/Llama-3.1-8B-Instruct-FP8", tensor_parallel_size=2, max_batch_size=128, max_num_tokens=8192)
