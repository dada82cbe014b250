# after InternLM/lmdeploy, docs/en/llm
lmdeploy serve api_server internlm/internlm2_5-7b-chat --server-port 23333 --tp 2 --session-len 32768 --cache-max-entry-count 0.5
