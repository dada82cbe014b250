docker run --rm --gpus all nvcr.io/nvidia/tensorrt-llm/release:1.0.0 trtllm-serve "TinyLlama/TinyLlama-1.1B-Chat-v1.0" --max_batch_size 8 # after NVIDIA/TensorRT-LLM, quick start
