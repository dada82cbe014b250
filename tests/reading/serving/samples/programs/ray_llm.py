# after ray-project/ray, doc/source/serve/tutorials/deployment-serve-llm
from ray.serve.llm import LLMConfig, build_openai_app

llm_config = LLMConfig(
    model_loading_config=dict(model_id="my-qwq-32B", model_source="Qwen/QwQ-32B"),  # noqa: C408
    accelerator_type="L40S",
    engine_kwargs=dict(tensor_parallel_size=4, max_model_len=32768, reasoning_parser="deepseek_r1"),  # noqa: C408
)
app = build_openai_app({"llm_configs": [llm_config]})
