"""ColossalAI: 16-bit weights, fp32 master and moments, HybridAdam.

Sources, opened at colossalai 0.4.7: booster/plugin/low_level_zero_plugin.py (stage 1, fp16, master weights, buckets of 12 Mi
elements), gemini_plugin.py (every parameter sharded, shard_param_frac 1.0), nn/optimizer/hybrid_adam.py (fused on the card).
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks import hf_trainer
from vramcast.training.recipe.draft import Draft, Overrides, because
from vramcast.training.recipe.parts import ModelParallel, Precision, Sharding, Update
from vramcast.workload import Training


def resolve(draft: Draft, question: Training, model: Model) -> Overrides:
    """ZeRO-1 over the data-parallel ranks unless stated; fused kernels when available."""
    compute = draft.get("compute", "float16")
    yield because("LowLevelZeroPlugin", Precision, weights=compute, compute=compute, autocast=False)
    yield because("LowLevelZeroPlugin", Update, master="float32", states="float32")
    yield because("HybridAdam", Update, implementation="fused", flattens=False)
    yield because("reduce_bucket_size_in_m=12", Sharding, bucket_elements=12 * 2**20 if question.parallel.dp > 1 else 0)
    if question.zero is None and question.parallel.dp > 1:
        yield because("LowLevelZeroPlugin: stage 1", Sharding, kind="zero1")
    why = "shardformer/layer/_operation.py: _LinearWithGatherForwardReduceScatterBackward saves its part"
    yield because(why, ModelParallel, gathers_again=True)
    yield because("the optimizer is made outside the Trainer", Update, wide_ends=False)
    yield from hf_trainer.resolve(draft, question, model)
