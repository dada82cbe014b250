# after noonghunna/club-3090 and common gists: short flags, an unquoted regular expression in quotes
./build/bin/llama-server -hf unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M -c 65536 -ngl 99 -fa on -ctk q8_0 -ctv q8_0 \
  -ot "blk\.(2[0-9]|3[0-9])\.ffn_.*_exps\.=CPU" -ub 2048 -b 2048 -np 1 --jinja -t 16 --host 0.0.0.0
