"""How a framework's layers are implemented: which kernels run, in which dtypes, and what of them is trained."""

from collections.abc import Mapping

import msgspec

from vramcast.models.classes import Layer


class LowRank(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter on linear layers, of a ``kind``: ranks by role, the dtype of its weights and its dropout.

    ``casts``: the adapter's input is cast to its dtype first (PEFT); ``fused``: one autograd function per projection that saves
    only its (dropped out) input (Unsloth's fast_lora); ``dora``: the magnitude path computes a second full output; ``padded``:
    parts of a packed projection whose additions are copied into its whole width (litgpt).
    """

    kind: str = "lora"
    ranks: Mapping[str, int] = {}
    width: int = 4
    dropout: float = 0.0
    casts: bool = True
    fused: bool = False
    dora: bool = False
    padded: frozenset[str] = frozenset()


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides what a layer saves for one token. Widths are bytes.

    ``width``: inputs and outputs of matmuls; ``residual``: the residual stream; ``cast_weights``: autocast keeps a copy of each
    weight; ``norm``: eager (HF's upcasting RMSNorm), fused, native (torch's), ``norm_weight``: width of its weight; ``rope``:
    eager or fused; ``glu``: eager (HF modules), torch (plain functions), fused, recomputed, packed (one matmul, fused product).
    ``autocast``: pow, softmax and layer norms run in fp32, matmuls cast their inputs. ``norm_form``: where an eager RMSNorm casts
    back (a row of models/classes). ``sdpa``: the kernel of each
    layer is torch's choice, ``attention`` its first. ``fused_experts``, ``expert_width``: experts are one tensor, held in that
    width, which grouped matmuls do not cast (transformers 5); ``float_router``: the router runs in fp32;
    ``clamped_glu``: GPT-OSS's.
    ``attention``: flash, cudnn, efficient, math, eager, unfused; ``repeats_kv``: keys and values are expanded to all heads;
    ``qkv``: separate projections, or packed into one whose parts are views or copies. ``experts``: loop or grouped.
    ``dequantize``: bytes of a dequantised weight element per call, 0 = none; ``quant_width``: width in which a quantised linear
    saves its input though frozen (bitsandbytes up to 0.42), 0 = it does not; ``saved_inputs``: width in which a trained
    matmul saves its input when that differs (fp8, fp4), 0 = as it is; ``saved_weights``: the same of its weight;
    ``scans``: operations of their own take the absolute values of both, whose largest is wanted;
    ``unpacks``: weights are unpacked by plain tensor operations, and the unpacked copy is saved for backward (AutoGPTQ's own
    kernel in training); ``reached``: gradients are wanted of the layers' input, as of any above a trained embedding;
    ``joined``: attention runs image by image, and its results are copied into one; ``written``: the class's own row.
    ``recomputed``: layers run again in backward. ``scan``: recurrent mixers run in kernels of packages of their own, or in plain
    torch operations. ``trains``: the layer's own weights want gradients; ``trains_norms``: those of its norms alone do (PEFT's LN
    tuning), which save what they scale.
    """

    width: int = 2
    residual: int = 2
    autocast: bool = False
    norm_form: str = "narrow"
    sdpa: bool = False
    cast_weights: bool = False
    norm: str = "eager"
    norm_weight: int = 2
    rope: str = "eager"
    glu: str = "eager"
    attention: str = "flash"
    repeats_kv: bool = False
    qkv: str = "separate"
    quant_width: int = 0
    saved_inputs: float = 0
    saved_weights: float = 0
    scans: bool = False
    unpacks: bool = False
    experts: str = "loop"
    fused_experts: bool = False
    expert_width: int = 2
    float_router: bool = False
    clamped_glu: bool = False
    trains: bool = True
    trains_norms: bool = False
    reached: bool = True
    joined: bool = False
    adapter: LowRank | None = None
    dequantize: int = 0
    hidden_dropout: float = 0.0
    attention_dropout: float = 0.0
    gradient_width: int = 2
    tp: int = 1
    sp: bool = False
    ep: int = 1
    expert_tp: int = 1
    imbalance: float = 1.0
    written: Layer = Layer()
    scan: str = "kernels"
    recomputed: bool = False
