"""How a family's layer is written in transformers, where it is written otherwise than Llama's; one row per family.

Source: models/<family>/modeling_<family>.py of transformers 5.23. Everything else follows from the model's own tensors.
"""

import msgspec


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The words of one family's modules.

    ``norms``: before a branch (pre), of a branch's result before it is added (post), or of the sum (sum); ``layer_norm``: torch's
    own, though it has no bias, ``float_norm``: on a float copy. ``scaled_branches``: a branch is multiplied by a number before it
    is added. ``inner_dropout``: an MLP drops out inside too. ``repeated_rope``: cosines and sines are repeated in every layer, in
    the stream's width or in float.
    ``eager``: attention's scores are always written out, as its class knows no kernel; ``softmax_as_is``: their softmax stays in
    their own width; ``biased``: positions that train are added to them, which no fused kernel can.
    ``gated_norm``: a scan's result is normed with its gate, or only multiplied with it.

    ``router``: softmax over all experts, of the chosen ones alone (top), sigmoid, or sigmoid with groups of experts (groups);
    ``normalised``: the chosen weights are divided by their sum; ``float_routes``: they stay in float; ``every_expert``: all
    experts see every token; ``shared_first``: shared experts run before the others.
    """

    norms: str = "pre"
    scaled_branches: bool = False
    repeated_rope: str = ""
    softmax_as_is: bool = False
    eager: bool = False
    biased: bool = False
    inner_dropout: bool = False
    layer_norm: bool = False
    float_norm: bool = False
    gated_norm: bool = True
    router: str = "softmax"
    normalised: bool = True
    float_routes: bool = False
    every_expert: bool = False
    shared_first: bool = False


_SIGMOID = Written(router="sigmoid", float_routes=True)
_GROUPS = Written(router="groups", float_routes=True)
_SCALED = Written(scaled_branches=True, router="top")
_SUM = Written(norms="sum", softmax_as_is=True)

WRITTEN: dict[str, Written] = {
    "mixtral": Written(float_routes=True),
    "minimax": Written(float_routes=True),
    "qwen2_moe": Written(normalised=False, shared_first=True),
    "qwen3_next": Written(shared_first=True),
    "hunyuan_v1_moe": Written(shared_first=True),
    "olmoe": Written(normalised=False),
    "flex_olmo": Written(norms="post", normalised=False),
    "gpt_oss": Written(router="top"),
    "llama4_text": Written(router="top", every_expert=True),
    "deepseek_v2": Written(normalised=False, float_routes=True),
    "deepseek_v3": _GROUPS,
    "minimax_m2": _SIGMOID,
    "afmoe": msgspec.structs.replace(_SIGMOID, shared_first=True),
    "ernie4_5": Written(repeated_rope="float"),
    "ernie4_5_moe": Written(repeated_rope="float", shared_first=True),
    "modernbert": Written(layer_norm=True),
    "olmo": Written(layer_norm=True, float_norm=True),
    "falcon_h1": Written(gated_norm=False),
    "gpt2": Written(softmax_as_is=True),
    "gpt_bigcode": Written(softmax_as_is=True),
} | {
    **dict.fromkeys(("granite", "granitemoe", "granitemoeshared", "granitemoehybrid"), _SCALED),
    **dict.fromkeys(("glm4_moe", "glm4_moe_lite", "dots1", "exaone_moe", "solar_open"), _GROUPS),
    **dict.fromkeys(("gptj", "gpt_neo", "codegen", "bloom", "xglm", "deberta", "deberta-v2"), Written(eager=True)),
    "mpt": Written(eager=True, layer_norm=True),
    **dict.fromkeys(("t5", "mt5", "umt5"), Written(biased=True, inner_dropout=True, softmax_as_is=True)),
    **dict.fromkeys(("glm", "glm4"), Written(repeated_rope="stream")),
    **dict.fromkeys(("olmo2", "olmo3", "exaone4"), Written(norms="post")),
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "distilbert", "electra", "albert", "camembert", "bart", "mpnet"), _SUM),
}
