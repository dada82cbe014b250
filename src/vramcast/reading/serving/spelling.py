"""Each engine's own spelling of its flags: aliases, switches, and those that change neither memory nor speed.

Sources: vllm/engine/arg_utils.py and entrypoints/openai/cli_args.py (0.33), sglang/srt/server_args.py (0.5.23), llama.cpp
common/arg.cpp (0c1e57098), tensorrt_llm/commands/serve.py, text-generation-launcher's main.rs, lmdeploy/cli/serve.py.
Names are without leading dashes and with dashes inside; short ones keep their dash ("-tp").
"""

# What an engine calls a flag that has another name in its table here.
ALIASES: dict[str, dict[str, str]] = {
    "vllm": {
        "device-memory-utilization": "gpu-memory-utilization", "tensor-model-parallel-size": "tensor-parallel-size",
        "tp-size": "tensor-parallel-size", "pp-size": "pipeline-parallel-size",
        "-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size", "-dp": "data-parallel-size", "-q": "quantization",
        "-dcp": "decode-context-parallel-size", "-ep": "enable-expert-parallel", "kv-cache-memory": "kv-cache-memory-bytes",
        "max-num-seq": "max-num-seqs", "-sc": "speculative-config", "-cc": "compilation-config", "-ac": "attention-config",
        "spec-method": "speculative-method", "spec-model": "speculative-model", "spec-tokens": "num-speculative-tokens",
        "num-lookahead-slots": "num-speculative-tokens", "num-gpu-blocks": "num-gpu-blocks-override",
    },
    "sglang": {
        "tp": "tensor-parallel-size", "tp-size": "tensor-parallel-size", "pp": "pipeline-parallel-size",
        "pp-size": "pipeline-parallel-size", "dp": "data-parallel-size", "dp-size": "data-parallel-size", "ep": "ep-size",
        "expert-parallel-size": "ep-size", "enable-ep-moe": "enable-expert-parallel", "model-path": "model",
        "cuda-graph-max-bs-decode": "cuda-graph-max-bs",
        "mamba-ssm-cache-dtype": "mamba-ssm-dtype",
    },
    "llama_cpp": {
        "-c": "ctx-size", "-m": "model", "-hf": "hf-repo", "-hfr": "hf-repo", "-ngl": "n-gpu-layers",
        "gpu-layers": "n-gpu-layers", "-b": "n-batch",
        "batch-size": "n-batch", "-ub": "n-ubatch", "ubatch-size": "n-ubatch", "-np": "n-parallel",
        "parallel": "n-parallel", "-kvu": "kv-unified", "-fa": "flash-attn", "-ctk": "cache-type-k", "-ctv": "cache-type-v",
        "-sm": "split-mode", "-ts": "tensor-split", "-ot": "override-tensor", "-ncmoe": "n-cpu-moe", "-cmoe": "cpu-moe",
        "-nkvo": "no-kv-offload", "-fit": "fit", "-fitt": "fit-target-mib", "fit-target": "fit-target-mib",
        "-fitc": "fit-context", "fit-ctx": "fit-context", "-mla": "mla", "-amb": "attn-max-batch", "-fmoe": "fused-moe",
        "-rtr": "run-time-repack", "draft-max": "draft-tokens", "draft": "draft-tokens", "draft-n": "draft-tokens",
        "-ncmoed": "n-cpu-moe-draft", "mla-use": "mla", "spec-draft-n-max": "draft-tokens", "n-ctx": "ctx-size",
        "contextsize": "ctx-size", "gpulayers": "n-gpu-layers", "type-k": "cache-type-k", "type-v": "cache-type-v",
        "-dev": "device", "-nopo": "no-op-offload", "-md": "model-draft", "-mm": "mmproj",
        "-hfd": "hf-repo-draft", "-hfrd": "hf-repo-draft", "flashattention": "flash-attn", "quantkv": "cache-type",
    },
    "tensorrt_llm": {
        "tp-size": "tensor-parallel-size", "pp-size": "pipeline-parallel-size", "ep-size": "ep-size",
        "moe-expert-parallel-size": "ep-size", "kv-cache-free-gpu-memory-fraction": "free-gpu-memory-fraction",
        "kv-cache-free-gpu-mem-fraction": "free-gpu-memory-fraction", "kv-cache-config.free-gpu-memory-fraction":
        "free-gpu-memory-fraction", "kv-cache-config.max-tokens": "max-tokens", "kv-cache-config.tokens-per-block":
        "tokens-per-block", "kv-cache-config.dtype": "kv-cache-dtype", "tp": "tensor-parallel-size", "ep": "ep-size",
        "pp": "pipeline-parallel-size", "quant-config.quant-algo": "quantization", "max-tokens-in-paged-kv-cache": "max-tokens",
        "quant-config.kv-cache-quant-algo": "kv-cache-dtype", "max-input-len": "max-input-len",
    },
    "tgi": {
        "num-shard": "tensor-parallel-size", "quantize": "quantization", "max-total-tokens": "max-model-len",
        "model-id": "model", "max-input-length": "max-input-tokens",
    },
    "lmdeploy": {
        "tp": "tensor-parallel-size", "dp": "data-parallel-size", "ep": "ep-size", "session-len": "max-model-len",
    },
    "ktransformers": {"model-path": "model", "cache-lens": "max-model-len", "gguf-path": "gguf-path"},
    "ollama": {},
    "mlx": {"max-kv-size": "max-kv-size"},
}  # fmt: skip
ALIASES["ollama"] = {**ALIASES["llama_cpp"], "num-ctx": "ctx-size", "num-gpu": "n-gpu-layers", "num-batch": "n-batch"}
ALIASES["ik_llama_cpp"] = ALIASES["llama_cpp"]

# Flags that take no value, beside the switches of an engine's own table.
SWITCHES = frozenset(  # as words of a text, because a list of them is read by nobody
    """
    trust-remote-code enable-auto-tool-choice disable-log-requests disable-log-stats enable-log-requests
    disable-uvicorn-access-log enable-reasoning headless verbose metrics enable-metrics jinja no-jinja mlock no-mmap no-webui
    slots no-slots cont-batching -cb no-cont-batching offline no-warmup log-disable color interactive -i -cnv -no-cnv
    no-context-shift context-shift embedding embeddings reranking reuse-port enable-cache-report skip-server-warmup
    skip-tokenizer-init enable-multimodal enable-mixed-chunk enable-torch-compile disable-overlap-schedule enable-eplb
    async-scheduling enable-chunked-prefill enable-prompt-tokens-details disable-fastapi-docs enable-ssl-refresh
    enable-p2p-check disable-custom-all-reduce disable-flashinfer disable-radix-cache disable-shared-experts-fusion
    enable-hierarchical-cache kv-unified no-kv-unified swa-full cpu-moe no-kv-offload check-tensors no-repack numa-distribute
    prefer-cutlass use-v2-block-manager props no-perf enable-server-load-tracking enable-sleep-mode
    enable-tokenizer-info-endpoint disable-cascade-attn no-host no-op-offload disable-hybrid-swa-memory log-requests
    allow-auto-truncate enable-dp-lm-head enable-two-batch-overlap enable-return-routed disable-chunked-prefix-cache
    enable-symm-mem enable-nccl-nvls disable-cuda-graph-padding enable-flashinfer-allreduce-fusion data-parallel-hybrid-lb
    data-parallel-external-lb data-parallel-rank-local enable-dbo disable-piecewise-cuda-graph enable-layerwise-nvtx-marker
    enable-weights-cpu-backup log-timestamps log-prefix no-display-prompt special ignore-eos
    disable-nccl-for-dp-synchronization enable-flash-comm enable-lmcache allow-credentials enable-mfu-metrics simple-io
    enable-prefix-caching enable-expert-parallel enforce-eager enable-lora language-model-only disable-hybrid-kv-cache-manager
    disable-cuda-graph enable-dp-attention flash-attn flashinfer-sampler expandable-segments disable-hybrid-swa fit
    disable-access-log enable-tokenizer-batch-encode enable-return-hidden-states fused-moe run-time-repack -fmoe -rtr -ger
    """.split()  # noqa: SIM905
)

# Address, identity, logging, sampling, parsing of answers, checks: neither memory nor speed.
IDLE = frozenset(
    """
    allow-deprecated-quantization device-ids distributed-timeout-seconds data-parallel-multi-port-external-lb logits-processors
    worker-extension-cls enable-fault-tolerance fault-tolerance-config return-sampling-mask watermark watermark-config
    weight-transfer-config aux-output-config
    parallel-tool-calls reasoning tokenizer-name chat-template-config safetensors-load-strategy
    host port served-model-name api-key api-key-file trust-remote-code tokenizer tokenizer-mode chat-template tool-call-parser
    seed revision enable-auto-tool-choice reasoning-parser enable-reasoning disable-log-requests disable-log-stats log-level
    uvicorn-log-level download-dir load-format code-revision tokenizer-revision generation-config override-generation-config
    max-log-len ssl-keyfile ssl-certfile allowed-origins allowed-methods allowed-headers allow-credentials root-path
    response-role enable-request-id-headers disable-fastapi-docs enable-metrics metrics no-webui jinja no-jinja temp
    temperature top-p top-k min-p repeat-penalty presence-penalty alias -a mlock no-mmap mmap slots no-slots log-disable
    log-verbosity verbose verbosity timeout n-predict -n predict -s chat-template-file reasoning-format reasoning-budget
    no-display-prompt color interactive prompt -p file -f watchdog-timeout show-time-cost random-seed log-requests
    log-requests-level enable-cache-report model-impl hf-token disable-uvicorn-access-log enable-prompt-tokens-details
    return-tokens-as-token-ids collect-detailed-traces otlp-traces-endpoint model-name model-id config-format
    tool-parser-plugin chat-template-content-format default-chat-template-kwargs chat-template-kwargs data-parallel-address
    data-parallel-rpc-port data-parallel-start-rank data-parallel-size-local data-parallel-hybrid-lb data-parallel-external-lb
    data-parallel-rank headless api-server-count distributed-executor-backend master-addr master-port node-rank nnodes
    dist-init-addr dist-timeout skip-server-warmup decode-log-interval enable-log-requests disable-access-log-for-endpoints
    reuse-port offline no-warmup sampling-defaults preferred-sampling-params log-file log-prefix log-timestamps -lv -v -to -i
    -cnv -no-cnv sys -sys system-prompt system-prompt-file -r in-prefix reverse-prompt -e keep dry-multiplier
    frequency-penalty samplers sampler-seq mirostat props path threads-http slot-save-path no-context-shift context-shift
    webui no-perf perf ignore-eos special backend log-dir metrics-port metrics-endpoint enable-request-time-stats-logging
    crash-dump-folder served-modelname json-output hostname huggingface-hub-cache max-best-of max-stop-sequences
    max-client-batch-size waiting-served-ratio validation-workers weights-cache-override cors-allow-origin usage-stats
    payload-limit revision-id env max-concurrent-requests server-name server-port allow-terminate-with-error model-source-id
    enable-server-load-tracking max-new-tokens reasoning-parser-plugin exclude-tools-when-tool-choice-none
    enable-force-include-usage tokenizer-path tokenizer-worker-num middleware h11-max-header-count guided-decoding-backend
    structured-outputs-config grammar-backend postprocess-workers num-postprocess-workers stream-interval print-iter-log
    enable-iter-perf-stats enable-iter-req-stats log-iteration-details custom-tokenizer
    fail-fast-on-attention-window-too-large otlp-endpoint show-hidden-metrics-for-version multiuser quiet launch ui tags
    media-path mm-processor-kwargs allowed-local-media-path allowed-media-domains trust-request-chat-template
    disable-hostname-check enable-tokenizer-info-endpoint usecublas gpu-id base-gpu-id no-cnv conversation models-max
    models-dir sleep-idle-seconds name config hf-config-path ui-config enable-ssl-refresh ssl-ca-certs spm-infill rpc-server
    disagg-kv-port bootstrap-port kv-events-config is-prefill-worker is-decode-worker component endpoint connector
    dyn-tool-call-parser dyn-reasoning-parser dyn-chat-processor publish-events-and-metrics extra-engine-args served
    request-plane event-plane discovery-backend model-type store-kv model-config skip-tokenizer-init numa show
    grpc trust-request-mm-kwargs reasoning-effort-map tool-strict-level tool-server enable-per-request-metrics
    sse-keep-alive-interval enable-log-outputs enable-log-deltas cohere-is-reasoning-model cohere-format
    anthropic-disabled-thinking-effort log-error-stack tokens-only fingerprint-mode fingerprint-value grpc-port
    data-parallel-supervisor-port uds ssl-cert-reqs ssl-ciphers h11-max-incomplete-event-size enable-offline-docs
    enable-return-routed-experts io-processor-plugin ignore-patterns use-tqdm-on-load pt-load-map-location distributed-
    timeout-seconds
    cpu-distributed-timeout-seconds data-parallel-backend max-parallel-loading-workers ray-workers-use-nsight
    safetensors-prefetch-num-threads safetensors-prefetch-block-size prefix-caching-hash-algo media-io-kwargs mm-hasher-algorithm
    interleave-mm-strings logging-config log-config-file per-request-spec-decode-metrics kv-cache-metrics kv-cache-metrics-sample
    custom-histogram-buckets cudagraph-metrics enable-layerwise-nvtx-tracing enable-mfu-metrics enable-logging-iteration-details
    jit-monitor-mode jit-monitor-verbose reasoning-config profiler-config watchdog-config aggregate-engine-logging
    fail-on-environ-validation shutdown-timeout fastapi-root-path grpc-mode warmups nccl-port ssl-keyfile-password
    incremental-streaming-output stream-response-default-include-usage enable-streaming-session constrained-json-
    whitespace-pattern
    constrained-json-disable-any-whitespace soft-watchdog-timeout model-checksum gpu-id-step custom-sigquit-handler log-level-http
    log-requests-format log-requests-target uvicorn-access-log-exclude-prefixes enable-metrics-for-all-schedulers
    tokenizer-metrics-custom-labels-header tokenizer-metrics-allowed-custom-labels extra-metric-labels bucket-time-to-first-token
    bucket-inter-token-latency bucket-e2e-request-latency collect-tokens-histogram prompt-tokens-buckets generation-tokens-buckets
    gc-warning-threshold-secs enable-trace export-metrics-to-file export-metrics-to-file-dir admin-api-key weight-version
    hf-chat-template-name completion-template file-storage-path enable-expert-distribution-metrics expert-distribution-
    recorder-mode
    mooncake-ib-device enable-profile-cuda-graph disable-outlines-disk-cache enable-torch-compile-debug-mode enable-nan-detection
    enable-custom-logit-processor weight-loader-disable-mmap debug-tensor-dump-output-folder debug-tensor-dump-layers
    engine-info-bootstrap-port
    -bf -c -co -dkvc -gan -gaw -h -hff -hffv -hfrd -hfrv -hft -hfv -if -j -jf -l -lcd -lcs -mli -mu -mv -nocb -npl -npp
    -ns -ntg -o -ofreq -pps -ptc -sp -sps -st -sysf -tbd -td allow-headers allow-methods allow-origins
    allow-terminate-by-client api-keys binary-file calib-dataset calib-samples calib-seqlen chunk chunk-separator
    chunk-size chunks completion-bash context-file cpu-mask-batch cpu-mask-batch-draft cpu-mask-draft cpu-range-batch
    cpu-range-batch-draft cpu-range-draft cpu-strict-batch cpu-strict-batch-draft cpu-strict-draft disable-cache-status
    disable-gdr disable-grammar-support disable-metrics dp-rank dry-allowed-length dry-base dry-penalty-last-n
    dry-sequence-breaker dump-kv-cache dynatemp-exp dynatemp-range embd-bge-small-en-default embd-e5-small-en-default
    embd-gte-small-default embd-normalize embd-output-format embd-separator enable-abort-handling enable-prefill-logprobs
    escape fim-qwen-14b-spec fim-qwen-3b-default fim-qwen-7b-default fim-qwen-7b-spec from-chunk
    graceful-termination-timeout grammar grammar-file hellaswag hellaswag-tasks help hf-file hf-file-v hf-repo-v in-file
    in-prefix-bos in-suffix interactive-first json-schema json-schema-file junk kl-divergence kl-divergence-base link-type
    list-devices log-colors log-verbose logit-bias logprobs-mode lookup-cache-dynamic lookup-cache-static max-top-n-tokens
    max-waiting-tokens method migration-protocol mirostat-ent mirostat-lr model-url multiline-input multiple-choice
    multiple-choice-tasks negative-file ngrok ngrok-authtoken ngrok-edge no-escape no-ppl otlp-service-name output
    output-file output-format output-frequency pca-batch pca-iter perplexity poll-batch poll-batch-draft poll-draft pos
    positive-file ppl-output-type ppl-stride print-token-count prio-batch prio-batch-draft prio-draft process-output
    prometheus-port prompt-cache prompt-cache-all prompt-cache-ro proxy-url repeat-last-n repetition-penalty
    routing-strategy sampling-seq save-all-logits save-frequency search-scale sequences serving-strategy session-id
    shard-uds-path simple-io single-turn slot-prompt-similarity ssl ssl-cert-file ssl-key-file threads-batch-draft
    threads-draft tokenizer-config-path top-nsigma tts-oute-default tts-speaker-file tts-use-guide-tokens typical usage
    verbose-prompt version watermark-delta watermark-gamma winogrande winogrande-tasks work-dir xtc-probability
    xtc-threshold
    """.split()  # noqa: SIM905
)
# What changes speed and no memory: listed apart, since a forecast of speed does not count it.
SPEED = frozenset(
    """
    max-seq-len-to-capture
    disable-overlap-scheduler kv-cache-config.enable-block-reuse cuda-graph-config.enable-padding max-prefill-tokens
    async-scheduling no-async-scheduling threads threads-batch -t -tb prio poll cpu-mask cpu-range cpu-strict
    scheduling-policy schedule-policy schedule-conservativeness disable-overlap-schedule enable-mixed-chunk
    num-continuous-decode-steps enable-chunked-prefill no-enable-chunked-prefill max-num-partial-prefills
    max-long-partial-prefills long-prefill-token-threshold cont-batching -cb no-cont-batching numa tokenizer-pool-size
    mm-encoder-tp-mode preemption-mode scheduler-delay-factor num-scheduler-steps multi-step-stream-outputs
    enable-torch-compile torch-compile-max-bs load-balance-method stream-output enable-nccl-nvls use-v2-block-manager
    disable-cascade-attn enable-p2p-check cpu-infer cpu-moe-threads no-op-offload-min-batch defrag-thold -dt cache-reuse
    no-prefill-assistant scheduler-recv-interval enable-dbo performance-mode optimization-level
    numa-bind numa-bind-nodes numa-bind-cpus numa-node renderer-num-workers max-num-queued-reqs max-num-queued-tokens
    scheduler-cls
    scheduler-reserve-full-isl prefill-schedule-interval dp-sync-interval enable-priority-scheduling disable-priority-preemption
    default-priority-value schedule-low-priority-values-first priority-scheduling-preemption-threshold sleep-on-idle
    pp-async-batch-depth prefill-round-robin-balance disable-tokenizer-batch-decode disable-fast-image-processor gc-threshold
    enable-dynamic-batch-tokenizer dynamic-batch-tokenizer-batch-size dynamic-batch-tokenizer-batch-timeout pre-warm-nccl
    enable-shm-tensor-arena disable-nccl-for-dp-synchronization
    """.split()  # noqa: SIM905
)
