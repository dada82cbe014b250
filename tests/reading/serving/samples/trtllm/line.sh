trtllm-serve Qwen/Qwen3-8B --kv_cache_free_gpu_memory_fraction 0.9 --tp_size 2 --host 0.0.0.0 # after NVIDIA/TensorRT-LLM, docs
