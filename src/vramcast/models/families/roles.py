"""What a tensor does, told from its name alone: for classes that no family here writes out."""

import re

from vramcast.models.inventory import Tensor

# Roles by the last words of a name; the first row that matches wins. (pattern, role, shard axis)
_ROLES: tuple[tuple[str, str, int | None], ...] = (
    (r"norm|\bln_|layernorm", "norm", None),
    (r"experts.*(gate_up|up|w1|w3|gate)", "expert.up", None),
    (r"experts.*(down|w2|output)", "expert.down", None),
    (r"router|\bgate\.weight", "router", None),
    (r"bias$", "bias", None),
    (r"(qkv|query_key_value|c_attn|in_proj)", "qkv", 0),
    (r"(q_proj|query|\.q\b)", "q", 0),
    (r"(k_proj|key|\.k\b)", "k", 0),
    (r"(v_proj|value|\.v\b)", "v", 0),
    (r"(o_proj|out_proj|attn.*dense|c_proj|\.o\b)", "o", 1),
    (r"(gate_up|gate_proj|up_proj|fc1|w1|w3|c_fc|wi)", "up", 0),
    (r"(down_proj|fc2|w2|wo\b)", "down", 1),
    (r"lm_head|embed_out", "head", 0),
    (r"embed|wte|word_embeddings", "embedding", 0),
    (r"conv", "conv", None),
)


def named(name: str, shape: tuple[int, ...], kind: str) -> Tensor:
    """A tensor with the role and the shard axis that its name tells, "other" where it tells none."""
    for pattern, role, shard in _ROLES:
        if re.search(pattern, name):
            axis = shard if shard is not None and shard < len(shape) else None
            return Tensor(name=name, shape=shape, role=role, shard=axis, kind=kind)
    return Tensor(name=name, shape=shape, role="other", kind=kind)
