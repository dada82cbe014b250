# after sgl-project/sglang, examples/runtime/engine
import sglang as sgl

llm = sgl.Engine(model_path="Qwen/Qwen2.5-7B-Instruct", tp_size=2, mem_fraction_static=0.8, log_level="error")
