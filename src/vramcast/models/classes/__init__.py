"""What is known of each model class: one row per ``model_type``, and every fact that hangs on a class by name stands in it.

``rows.jsonl`` holds the rows, one a line. A wrapper (Llama 4, Qwen3-VL) has a row of its own beside that of its text decoder:
what a layer does is asked of ``Model.text_class``, what an engine does with images of ``Model.family``. A group that is null was
never looked up: whoever asks says so (``Unmodelled``) and does not take the class for a Llama. A group that is present, even
empty, was read: what it leaves out is as the fields below default, which is how ``LlamaDecoderLayer`` is written.

``tools/build_classes.py`` asks transformers for the fields that its classes can answer, and writes them; a test holds that the
rows still say the same. Every other field has its source here or in the row's ``sources``.
"""

from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from vramcast.models.inventory import Model

ROWS = Path(__file__).with_name("rows.jsonl")


NormForm = Literal["narrow", "wide", "offset", "centred", "mixed"]
"""Where an eager norm casts back to 16 bits."""


class Layer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How transformers writes one decoder layer (models/<class>/modeling_<class>.py of 5.23).

    ``norms``: before a branch (pre), of a branch's result before it is added (post), or of the sum (sum). ``norm_form``: where
    the norm casts its float copy back to 16 bits: before its weight (narrow), after it (wide), after 1 + weight (offset); a
    LayerNorm written out (centred); only the square is in float (mixed). ``layer_norm``: torch's own kernel though it has no
    bias, ``float_norm``: on a float copy; ``narrows_norm``: its result is cast back to the stream's width;
    ``casts_norm``: under autocast it runs in 16 bits. ``scaled_branches``: a branch is multiplied by a number before it is added.
    ``inner_dropout``: an MLP drops out inside too. ``repeated_rope``: cosines and sines are repeated in every layer, in the
    stream's width or in float.

    ``eager``: attention scores are always written out, as the class knows no kernel; ``softmax_as_is``: their softmax stays in
    their own width; ``biased``: positions that train are added to them, which no fused kernel can; ``clamped_scores``: they are
    compared with the least number, which saves them; ``names_scores``: Python names them, masked or also as they
    were before, until attention is over. ``returns_scores``: the layer returns its probabilities, which the model's loop names
    while the next layer runs.
    ``gated_norm``: a scan's result is normed with its gate, or only multiplied with it. ``parted_scan``: no one kernel runs a
    whole Mamba 1 mixer, as its steps, B and C are normed in between (Jamba) or its heads scanned one by one (Zamba).

    ``clamps_qkv``: queries, keys and values in one are cut off at a largest value. ``expands_kv``: keys and values are written
    out for every query head before any kernel; ``value_norm``: values pass an RMSNorm without a weight; ``sub_norms``: norms
    stand before the last projection of attention and of the MLP.

    ``router``: softmax over all experts, of the chosen ones alone (top), sigmoid, or sigmoid with groups of experts (groups);
    ``normalised``: the chosen weights are divided by their sum; ``float_routes``: they stay in float; ``float_router``: input and
    weight of the router are cast to float; ``every_expert``: all experts see every token; ``shared_first``: shared experts run
    before the others; ``sliced_experts``: one after another they are cut out of joint tensors; ``clamped_glu``: gate and up are
    clamped before their product (gpt-oss).
    """

    norms: Literal["pre", "post", "sum"] = "pre"
    norm_form: NormForm = "narrow"
    layer_norm: bool = False
    float_norm: bool = False
    narrows_norm: bool = False
    casts_norm: bool = False
    scaled_branches: bool = False
    inner_dropout: bool = False
    repeated_rope: Literal["", "stream", "float"] = ""
    eager: bool = False
    softmax_as_is: bool = False
    biased: bool = False
    clamped_scores: bool = False
    names_scores: Literal["", "masked", "both"] = ""
    returns_scores: bool = False
    gated_norm: bool = True
    parted_scan: bool = False
    router: Literal["softmax", "top", "sigmoid", "groups"] = "softmax"
    normalised: bool = True
    float_routes: bool = False
    float_router: bool = False
    every_expert: bool = False
    shared_first: bool = False
    sliced_experts: bool = False
    clamped_glu: bool = False
    clamps_qkv: bool = False
    expands_kv: bool = False
    value_norm: bool = False
    sub_norms: bool = False


class Whole(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How transformers and PEFT treat the model around its layers.

    ``hidden_dropout``, ``attention_dropout``: what the config class defaults to (configuration_<class>.py). ``own_loss``: its
    forward computes its cross entropy itself, not by loss_utils.py. ``narrow_loss``: before 4.49 its forward took the cross
    entropy of its 16-bit logits, where others made them float (modeling_<class>.py at 8de7b1ba8d of 4.48; pull requests 35875 and
    9afb904b15 of February 2025); a class of remote code keeps its own loss at every version. ``capped_logits``:
    final_logit_softcapping. ``repeats_kv``: until the attention interface of 4.48 its flash class repeated keys and values to
    all heads. ``converts_experts``: PEFT carries adapters over to tensors that hold all experts (conversion_mapping.py).
    ``transposed``: weights are stored as (in,
    out), in pytorch_utils.Conv1D. ``tuned_norms``: the only norms that PEFT's LN tuning reaches; None: all of them
    (peft 0.21.2, utils/constants.py). ``unquantized``: matrices that every quantiser leaves alone, by name
    (_keep_in_fp32_modules, quantizers/base.py: get_modules_to_not_convert). ``own_trainer``: the framework that brings layers and
    loss of its own for the class (llm-foundry 0.22.0, models/mpt).
    """

    hidden_dropout: float = 0.0
    attention_dropout: float = 0.0
    own_loss: bool = False
    narrow_loss: bool = False
    capped_logits: bool = False
    repeats_kv: bool = False
    converts_experts: bool = False
    transposed: bool = False
    tuned_norms: tuple[str, ...] | None = None
    unquantized: tuple[str, ...] = ()
    own_trainer: str = ""


class Served(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What engines and publishers do with a class by its name.

    ``image_tokens``: of the largest image that its preprocessor lets through, where images have any size (max_pixels or
    longest_edge of preprocessor_config.json, in merged patches). ``pooled_patches``: patches that become one token, where the
    tower's facts do not say. ``image_tiles``: images of the tower's size that the largest is cut into, and the whole in small
    (preprocessor_config.json of the published checkpoints), where the config does not say. ``replicated_towers``: vLLM builds
    transformers' towers and replicates their linear layers.
    ``parsed_apart``: vLLM's V0 kept the images it had joined beside those it was given. ``float_state``: the recurrent state is
    float32 by its config (mamba_ssm_dtype). ``second_runner``: the vLLM release since which it takes the second model runner by
    name. ``embedding_slots``: vLLM before 0.12 gave its embeddings LoRA slots (``embedding_modules``). ``window_pool``: the share
    of the full pool's tokens that SGLang gives sliding layers in a pool of their own, 0: they pay the full length.
    ``nvfp4_attention``: NVIDIA's published NVFP4 checkpoints quantise attention too. ``gguf_rows``: rows of the embedding that
    llama.cpp's converter keeps, 0: all. ``gguf_mix``: the branch of llama-quant.cpp that names this architecture.
    ``largest_capture``: the largest batch that vLLM captures as a graph for this class, 0: by the engine's own rule.
    ``sglang_cuts_towers``: SGLang's vision tower is cut by tensor parallelism (VisionAttention and parallel linears).
    ``sglang_blind``: SGLang shows it no images without --enable-multimodal. ``backend``: how far
    an engine's Transformers backend takes the class: ``made`` for it, attention ``settable``, ``none``, "": it has none.
    ``gguf``: whether llama.cpp can hold the class, False where neither its converter nor its graphs know it
    (conversion/__init__.py of b9900, TEXT_MODEL_MAP); ``ggml_program``: what of ggml runs it then.
    """

    image_tokens: int = 0
    pooled_patches: int = 1
    image_tiles: int = 1
    replicated_towers: bool = False
    parsed_apart: bool = False
    float_state: bool = False
    second_runner: str = ""
    embedding_slots: bool = False
    window_pool: float = 0.0
    nvfp4_attention: bool = False
    gguf_rows: int = 0
    gguf_mix: Literal["", "llama", "falcon"] = ""
    largest_capture: int = 0
    sglang_cuts_towers: bool = False
    sglang_blind: bool = False
    backend: Literal["", "made", "settable", "none"] = ""
    gguf: bool = True
    ggml_program: str = ""


class Traced(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far the activation formulas are from traced layers of the class: the largest |forecast/traced - 1| over its rows.

    ``saved``: what one layer keeps for backward; ``kept``: what it keeps when it is recomputed, its input; ``forward``,
    ``backward``: the tops of its two passes (truth/traced/activations.jsonl, written by tools/build_traced_errors.py).
    """

    saved: float = 0.0
    kept: float = 0.0
    forward: float = 0.0
    backward: float = 0.0


class Remote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A class that is code beside its weights, which a usual decoder can stand for in a traced script.

    ``layer``: what it calls its layer; ``normed_head``: the rows of a head whose weight is normed in every pass (Baichuan 2);
    ``alibi_width``: the hidden size that has ALiBi in place of rotations (Baichuan-13B). Its loss is its own, of float logits but
    where ``Whole.narrow_loss`` says 16 bits. Source: the modeling file beside each checkpoint on the hub.
    """

    layer: str
    normed_head: int = 0
    alibi_width: int = 0


class ModelClass(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One class by its ``model_type``; a group that is None was never looked up.

    ``reader``: the module of models/families that reads its config, "" where it is only met inside a wrapper; ``aliases``: what
    remote code calls the same class; ``reads_as``: another row, the class whose config and layers it shares (wrappers' decoders).
    ``asked``: the transformers release that answered for it; "" where every field was read by hand.
    ``unverified``: why its count is not sure, where nothing that was published or built was ever held against it.
    ``sources``: where a field was read, for those whose source is not above.
    """

    name: str
    reader: str = ""
    unverified: str = ""
    aliases: tuple[str, ...] = ()
    reads_as: str = ""
    asked: str = ""
    layer: Layer | None = None
    whole: Whole = Whole()
    served: Served = Served()
    traced: Traced | None = None
    remote: Remote | None = None
    sources: dict[str, str] = {}


def model_class(name: str) -> ModelClass:
    """The facts of that ``model_type``, or of the class it is read as.

    A row without facts where nobody knows it.
    """
    rows, aliases = _rows(), aliased()
    row = rows.get(aliases.get(name, name)) or ModelClass(name=name)
    return rows[row.reads_as] if row.reads_as else row


def norms_embedding(model: Model) -> bool:
    """Whether a LayerNorm of the embeddings is where the stream begins (BERT, BART, bloom); autocast returns it in float32.

    Source: aten/autocast_mode.h: layer_norm is on the float32 list, and a sum of float32 and 16 bits is float32.
    """
    normed = [t.name for t in model.tensors if t.role == "norm" and "embed" in t.name]
    row = model_class(model.text_class).layer or Layer()
    return any(name.endswith("bias") for name in normed) or (bool(normed) and row.layer_norm)


def model_classes() -> tuple[ModelClass, ...]:
    """Every row, in alphabetical order."""
    return tuple(_rows().values())


@cache
def aliased() -> dict[str, str]:
    """Other names of classes, each with the ``model_type`` that has the row."""
    return {alias: row.name for row in model_classes() for alias in row.aliases}


@cache
def readers() -> dict[str, str]:
    """Each ``model_type`` that can stand at the top of a config, with the module of models/families that reads it."""
    return {row.name: row.reader for row in model_classes() if row.reader}


def known_classes() -> tuple[str, ...]:
    """Every ``model_type`` that has a row, and the other names of the same classes."""
    return (*_rows(), *aliased())


@cache
def _rows() -> dict[str, ModelClass]:
    decoder = msgspec.json.Decoder(ModelClass)
    return {row.name: row for row in map(decoder.decode, ROWS.read_bytes().splitlines())}
