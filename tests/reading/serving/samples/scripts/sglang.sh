#!/bin/bash
# after SemiAnalysisAI/InferenceX, dsr1_fp8_h200: SGLang with data parallel attention; the model is left to the caller
python3 -m sglang.launch_server --model-path=$MODEL --host=0.0.0.0 --port=$PORT --trust-remote-code \
--tensor-parallel-size=8 --dp 8 --enable-dp-attention --mem-fraction-static 0.82 --chunked-prefill-size 16384 \
--cuda-graph-bs 1 2 4 8 16 32 64 --max-running-requests 512 --kv-cache-dtype fp8_e4m3 --disable-radix-cache
