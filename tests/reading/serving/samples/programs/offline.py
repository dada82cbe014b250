# after vllm-project/vllm, examples/offline_inference: constants, arguments' defaults, what only running would tell
import argparse
import os

from vllm import LLM, SamplingParams

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensor-parallel-size", type=int, default=2)
    args = parser.parse_args()
    llm = LLM(
        model=MODEL,
        tensor_parallel_size=args.tensor_parallel_size,
        max_model_len=8 * 1024,
        gpu_memory_utilization=0.9,
        enforce_eager=True,
        seed=int(os.environ["SEED"]),
    )
    print(llm.generate(["x"], SamplingParams(max_tokens=16)))
