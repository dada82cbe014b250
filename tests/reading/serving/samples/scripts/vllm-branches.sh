#!/usr/bin/env bash
# after SemiAnalysisAI/InferenceX, benchmarks/single_node: a case, a branch that the script decides, an array of flags
set -euo pipefail
MODEL=deepseek-ai/DeepSeek-V3
TP=${TP:-8}
EP_SIZE=8
case "$MODEL" in
  *DeepSeek*) EXTRA=(--block-size 64 --kv-cache-dtype fp8) ;;
  *) EXTRA=() ;;
esac
if [ "$EP_SIZE" -gt 1 ]; then
  EP=" --enable-expert-parallel"
else
  EP=" "
fi
[ -n "${PORT:-}" ] || PORT=8000
VLLM_CMD=(vllm serve "$MODEL" --port "$PORT"
  --tensor-parallel-size "$TP"   # all cards
  $EP --max-num-batched-tokens $((4 * 2048))
  --speculative-config "{\"method\": \"mtp\", \"num_speculative_tokens\": 2}")
"${VLLM_CMD[@]}" "${EXTRA[@]}" > server.log 2>&1 &
sleep 10 && curl localhost:$PORT/health
