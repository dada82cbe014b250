# after vllm-project/recipes and vllm's docs on docker: an image, its own entry point, an environment
docker run --runtime nvidia --gpus '"device=0,1"' -v ~/.cache/huggingface:/root/.cache/huggingface \
    --env "HF_TOKEN=$HF_TOKEN" -e VLLM_USE_V1=1 -p 8000:8000 --ipc=host --name my-vllm \
    vllm/vllm-openai:v0.10.1 --model mistralai/Mistral-7B-v0.1 --tensor-parallel-size 2 --max-model-len 16k
