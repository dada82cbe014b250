"""transformers' rules by the version they hold from.

Read from transformers 4.35 to 5.23: the modeling files, cache_utils.py and generation/utils.py.
"""

from vramcast.serving.engines.base import Table

VERSIONS = ("4.35.0", "4.38.2", "4.46.0", "4.51.3", "4.56.0", "5.0.0", "5.15.0", "5.23.0")

# logits of the whole prompt, raised to fp32, before only the last token's were computed (num_logits_to_keep)
FULL_LOGITS: Table[bool] = (((0,), True), ((4, 45), False))
# the cache is a tuple of tensors that the caller holds while each step concatenates new ones: twice the bytes for a moment
TUPLE_CACHE: Table[bool] = (((0,), True), ((4, 42), False))
# every attention layer keeps its own table of cosines and sines for all positions
ROTARY_PER_LAYER: Table[bool] = (((0,), True), ((4, 40), False))
# sliding layers of a dynamic cache keep only their window
SLIDING_CACHE: Table[bool] = (((0,), False), ((4, 56), True))
# latent attention keeps its latent instead of every head's keys and values; with an indexer some releases later
LATENT_CACHE: Table[bool] = (((0,), False), ((5, 15), True))
INDEXED_LATENT_CACHE: Table[bool] = (((0,), False), ((5, 21), True))
# a recurrent state keeps the type its kernel made it in, float32, instead of the convolution's
FLOAT32_STATE: Table[bool] = (((0,), False), ((5, 14), True))
# attention when none is asked: PyTorch's fused kernel where the class has it
ATTENTION: Table[str] = (((0,), "eager"), ((4, 36), "sdpa"))

# the fp8 loader leaves a tied head in memory apart from the embedding (Qwen3-4B-FP8 holds exactly one embedding more)
FP8_UNTIES: Table[bool] = (((0,), False), ((4, 49), True))
