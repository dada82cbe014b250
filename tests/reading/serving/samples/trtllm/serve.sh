# after SemiAnalysisAI/InferenceX, dsr1_fp8_b200_trt: the extra options are written by the script itself
EXTRA_CONFIG_FILE=dsr1.yml
MAX_BATCH=64
cat > $EXTRA_CONFIG_FILE << EOF
cuda_graph_config:
    enable_padding: true
    max_batch_size: $MAX_BATCH
kv_cache_config:
    dtype: fp8
    free_gpu_memory_fraction: 0.8
    enable_block_reuse: false
stream_interval: 10
EOF
cat << EOF >> $EXTRA_CONFIG_FILE
moe_config:
    backend: TRTLLM
EOF
mpirun -n 1 --oversubscribe --allow-run-as-root trtllm-serve deepseek-ai/DeepSeek-R1 --port=8000 --trust_remote_code \
    --backend=pytorch --max_seq_len=16384 --max_num_tokens=8192 --max_batch_size=$MAX_BATCH --tp_size=8 --ep_size=8 \
    --extra_llm_api_options=$EXTRA_CONFIG_FILE
