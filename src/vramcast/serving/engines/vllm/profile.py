"""The peak of vLLM's profile run: a forward of ``max_num_batched_tokens``, then the sampler on ``max_num_seqs`` rows.

The two follow each other, so the peak is the larger; the fused-MoE workspace and encoder outputs stay allocated through both.
Read from vllm/v1/worker/gpu_model_runner.py (profile_run, _dummy_sampler_run), v1/sample/sampler.py,
v1/sample/ops/topk_topp_sampler.py and topk_topp_triton.py, v1/worker/gpu/sample/sampler.py, model_executor/layers/fused_moe.
bitsandbytes multiplies fused matrices slice by slice (q, k, v; gate, up), each slice dequantised whole by MatMul4Bit
(model_executor/layers/quantization/bitsandbytes.py apply_bnb_4bit); a single row takes a kernel that reads 4 bits.
Before the decoder's run images up to the step's token budget are encoded, as many of the largest as it holds and at least one;
their outputs and pixels stay allocated (multimodal/encoder_budget.py).
"""

from math import ceil

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.runtime import cublas_workspace_bytes
from vramcast.ledger import Term, Unmodelled, either
from vramcast.models.classes import model_class
from vramcast.models.inventory import TILES, Model, Tower
from vramcast.models.layers import Dense, Experts
from vramcast.models.sharding import Stage, cut, share_shape
from vramcast.quantity import Number, Quantity, bytes_, maximum, minimum, named, whole
from vramcast.serving.engines.base import Version, at
from vramcast.serving.engines.vllm import versions
from vramcast.serving.layers import widest_feedforward, widest_mixer

# bytes per logit beside the model's own copy. A sort: fp32 logits, sorted values, 8-byte indices, and the sort's own key and
# index buffers; a pivot search: fp32 logits, probabilities and exponential noise; FlashInfer: fp32 logits, those that top-k left,
# and probabilities; the second runner: fp32 logits alone, drawn from in place, or not even those
SAMPLER_BYTES = {"sort": 36, "pivot": 12, "flashinfer": 12, "in_place": 4, "as_they_are": 0}
CHANNELS = 3
DEFAULT_SMS = 132


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of the profile run and of the rank it runs on.

    ``tokens``: of the dummy forward; ``rows``: sequences of the dummy sampler run, which samples as ``sampler`` says (a key of
    SAMPLER_BYTES); both may be arrays, one element per layout. ``expert_tp``: ranks that cut each expert. ``element``: bytes of
    one activation. ``towers``: those whose images are encoded. ``dequantizes``: bitsandbytes unpacks slices of 4-bit weights.
    ``pixel_copies``: of the images' pixels. ``modular_experts``: routed experts work in the workspace that modular kernels share;
    a monolithic kernel's own tensors come and go (gpt_oss_triton_kernels_moe.py).
    """

    version: Version
    tokens: Number
    rows: Number
    tp: int
    expert_tp: int
    pp: int
    element: float
    sampler: str
    card: Accelerator | None
    towers: tuple[Tower, ...] = ()
    dequantizes: bool = False
    pixel_copies: int = 1
    modular_experts: bool = True

    @property
    def pixel(self) -> float:
        """Bytes of a pixel value in all copies: fp32 as the processor makes it, until it was cast there (vllm#18862)."""
        return self.pixel_copies * (self.element if at(self.version, versions.CASTS_PIXELS) else 4)


def forward_term(model: Model, stage: Stage, batch: Batch) -> Term:
    """Transient tensors of the widest moment of a layer, and what a pipeline stage passes on.

    A workspace that is given back belongs to the experts' moment alone, so the mixer's may still be the wider one.
    """
    mixer = _moment(widest_mixer(stage, hidden=model.hidden, tp=batch.tp), batch)
    experts = [_moment(widest_feedforward(stage, hidden=model.hidden, tp=batch.tp), batch)]
    if not kept_workspace(batch):
        experts.extend(_workspace(stage, model, batch))
    widest = either(mixer.bytes > sum(t.bytes for t in experts), [mixer], experts)
    parts = (*widest, *_dequantized(stage, batch), _cublas(batch), *kept_terms(model, stage, batch))
    return Term.total("activations", parts, source="vllm/v1/worker/gpu_model_runner.py profile_run")


def _moment(width: Quantity, batch: Batch) -> Term:
    return Term(name="widest_layer", amount=named(batch.tokens, "tokens") * width * bytes_(batch.element))


def _dequantized(stage: Stage, batch: Batch) -> tuple[Term, ...]:
    if not batch.dequantizes:
        return ()
    slice_elements = named(widest_slice(stage, batch.tp), "elements of the widest slice")
    return (Term(name="dequantized", amount=slice_elements * bytes_(batch.element)),)


def _cublas(batch: Batch) -> Term:
    return Term(name="cublas", bytes=cublas_workspace_bytes(batch.card), why="workspace torch gives cuBLAS")


def sampling_term(model: Model, stage: Stage, batch: Batch) -> Term:
    """The sampler's dummy run: logits of every row with the copies that top-k, top-p and sampling make of them."""
    rows, vocab = named(batch.rows, "rows"), named(model.vocab, "vocabulary")
    copies = 2 if at(batch.version, versions.DRAWS_STATES) and batch.sampler not in ("in_place", "as_they_are") else 1
    states = (named(batch.tokens, "tokens") + copies * rows) * named(model.hidden, "hidden") * bytes_(batch.element)
    parts = [
        Term(name="sampler", amount=rows * vocab * bytes_(batch.element + SAMPLER_BYTES[batch.sampler])),
        Term(name="hidden_states", amount=states),
        _cublas(batch),
    ]
    if batch.sampler == "pivot":
        programs = minimum(batch.rows, batch.card.sms if batch.card and batch.card.sms else DEFAULT_SMS)
        parts.append(Term(name="top_k_buffer", amount=named(programs, "programs") * vocab * bytes_(4)))
    parts.extend(kept_terms(model, stage, batch))
    return Term.total("logits", parts, source="vllm/v1/sample/sampler.py and ops/; v1/worker/gpu/sample/sampler.py")


def kept_terms(model: Model, stage: Stage, batch: Batch) -> list[Term]:
    """What outlives the forward: the MoE workspace in newer versions, and the tensors a pipeline stage receives."""
    parts = list(_workspace(stage, model, batch)) if kept_workspace(batch) else []
    parts.extend(kept_outputs(model, batch.towers, batch.tokens, batch.element, batch.pixel))
    if batch.pp > 1:
        passed = named(2, "hidden states and residual") * named(batch.tokens, "tokens") * named(model.hidden, "hidden")
        parts.append(Term(name="pipeline", amount=passed * bytes_(batch.element)))
    return parts


def kept_workspace(batch: Batch) -> bool:
    """Whether the fused-MoE workspace stays allocated."""
    return batch.modular_experts and at(batch.version, versions.KEEPS_MOE_WORKSPACE)


def _workspace(stage: Stage, model: Model, batch: Batch) -> list[Term]:
    """Workspaces of the fused-MoE kernels: tokens * top-k rows of max(I, H) and of max(2I, H) (TritonExperts)."""
    largest = max((_workspace_elements(b.feedforward, model.hidden, batch) for b, _ in stage.blocks), default=0)
    if not largest:
        return []
    tokens = named(_moe_tokens(batch), "tokens")
    each = named(largest, "elements per token")
    return [Term(name="moe_workspace", amount=tokens * each * bytes_(batch.element))]


def _workspace_elements(kind: Dense | Experts | None, hidden: int, batch: Batch) -> int:
    if not isinstance(kind, Experts):
        return 0
    width = kind.latent or hidden
    inner = -(-kind.intermediate // batch.expert_tp)
    outer = inner * 2 if kind.gated else inner
    return kind.active * (max(inner, width) + max(outer, width))


def _moe_tokens(batch: Batch) -> Number:
    chunk = at(batch.version, versions.MOE_CHUNK)
    return minimum(batch.tokens, chunk) if chunk else batch.tokens


_SCHEMES = ("nf4", "fp4", "bnb", "bitsandbytes")
_UNQUANTIZED = frozenset({"embedding", "head"})


def dequantizes(model: Model, quant: str | None) -> bool:
    """Whether the weights are bitsandbytes' 4 bits."""
    config = model.quantization or {}
    if quant is None:
        return config.get("quant_method") == "bitsandbytes" and bool(config.get("load_in_4bit", True))
    return quant.lower().startswith(_SCHEMES)


def widest_slice(stage: Stage, tp: int) -> int:
    """Elements of the largest slice of a layer's matrices on one rank."""
    shapes = (
        share_shape(tensor, cut(tp))
        for block, _ in stage.blocks
        for tensor in block.tensors
        if len(tensor.shape) == 2 and tensor.role not in _UNQUANTIZED
    )
    return max((rows * columns for rows, columns in shapes), default=0)


class Images(msgspec.Struct, frozen=True):
    """What the profile run encodes: tokens handed to the decoder and patches they are made from."""

    tokens: Number
    patches: Number
    patch_elements: int


def images_of(model: Model, tower: Tower, budget: Number) -> Images:
    """The images of one tower's profile run."""
    facts = tower.facts
    merge = facts.get("merge", 1) ** 2 * model_class(model.family).served.pooled_patches * _joined(facts)
    per_image = _per_image(model, facts, merge) * largest_tiles(model, facts)
    tokens = maximum(1, budget // per_image) * per_image
    return Images(tokens, whole(tokens * merge), round(CHANNELS * facts["patch_size"] ** 2 * facts.get("temporal_patch_size", 1)))


def profiled_tokens(model: Model, towers: tuple[Tower, ...], tokens: Number, *, whole_image: bool) -> Number:
    """Tokens of the dummy step: the V0 engine never cut an image, so its step was at least the largest one."""
    tower = vision_tower(towers)
    return maximum(tokens, images_of(model, tower, tokens).tokens) if whole_image and tower else tokens


def kept_outputs(model: Model, towers: tuple[Tower, ...], budget: Number, element: float, pixel: float) -> list[Term]:
    """Encoder outputs and pixel values of ``pixel`` bytes, which stay allocated while the decoder is profiled."""
    tower = vision_tower(towers)
    if tower is None:
        return []
    images = images_of(model, tower, budget)
    outputs = named(images.tokens, "tokens") * named(model.hidden, "hidden") * bytes_(element)
    pixels = named(images.patches, "patches") * named(images.patch_elements, "values") * bytes_(pixel)
    return [Term(name="encoder_outputs", amount=outputs), Term(name="pixels", amount=pixels)]


def encoder_term(
    model: Model, towers: tuple[Tower, ...], budget: Number, element: float, pixel: float, *, tp: int = 1
) -> Term | None:
    """The encoder's own peak: its widest layer over all patches, with pixels and outputs; None without a vision tower.

    Tensor parallelism cuts layers of vLLM's own towers as it cuts the decoder's (``mm_encoder_tp_mode`` weights).
    """
    tower = vision_tower(towers)
    if tower is None:
        return None
    tp = tp if splits_towers(model) else 1
    images = images_of(model, tower, budget)
    width = max((4 * tower.hidden + _wide(block.feedforward) // tp for block in tower.blocks), default=4 * tower.hidden)
    widest = Term(name="encoder_layer", amount=named(images.patches, "patches") * named(width, "wide") * bytes_(element))
    return Term.total("activations", (widest, *kept_outputs(model, towers, budget, element, pixel)))


_PADDED_TO = 8


def crossed_images_term(model: Model, towers: tuple[Tower, ...], seqs: Number, element: float, pixel: float) -> Term | None:
    """The V0 engine's encoder run for a decoder that attends across: every one of ``seqs`` sequences brings a largest image.

    All are encoded at once, and the peak is where kept layers' states are joined to the last: the kept ones and the last local
    layer's, as the encoder returned them, a copy of the kept ones in order, the last one's, and what joins them. None where the
    model has no such tower. Source: vllm 0.7.0, worker/enc_dec_model_runner.py profile_run and model_executor/models/mllama.py
    MllamaVisionModel.forward.
    """
    tower = vision_tower(towers)
    if tower is None or "tokens_per_image" not in tower.facts or not any(block.cross for block in model.blocks):
        return None
    widths = [t.shape[1] // tower.hidden for t in tower.tensors if t.role == "projector" and len(t.shape) == 2]
    tiles, joined = round(tower.facts.get(TILES, 1)), max(widths, default=1)
    tokens = round(tower.facts["tokens_per_image"])
    padded = tiles * -(-(tokens // tiles) // _PADDED_TO) * _PADDED_TO
    states = padded * joined + tokens * 2 * joined
    images = named(seqs, "images")
    held = images * named(states, "states") * named(tower.hidden, "wide") * bytes_(element)
    pixels = images * named(round(tiles * CHANNELS * tower.facts["image_size"] ** 2), "values") * bytes_(pixel)
    parts = (Term(name="encoder_states", amount=held), Term(name="pixels", amount=pixels))
    return Term.total("activations", parts, source="vllm/worker/enc_dec_model_runner.py of 0.7.0")


def unsized_images(model: Model) -> tuple[Unmodelled, ...]:
    """What the answer says where images have any size and nobody noted the largest that the preprocessor lets through."""
    tower = vision_tower(model.towers)
    if tower is None or "image_size" in tower.facts or model_class(model.family).served.image_tokens:
        return ()
    return (Unmodelled(f"the largest image of {model.family} is not known: its profile run encodes the step's tokens"),)


def splits_towers(model: Model) -> bool:
    """Whether tensor parallelism cuts the towers' weights."""
    return not model_class(model.family).served.replicated_towers


def _joined(facts: dict[str, float]) -> float:
    """Patches of an image of one size that become one token, where its tower says how many tokens it makes."""
    if not {"image_size", "tokens_per_image"} <= facts.keys():
        return 1
    return max(1, (facts["image_size"] // facts["patch_size"]) ** 2 / facts["tokens_per_image"])


def largest_tiles(model: Model, facts: dict[str, float]) -> int:
    """Into how many images of the tower's size the largest one is cut, the whole in small beside them."""
    return round(facts.get(TILES, model_class(model.family).served.image_tiles))


def _per_image(model: Model, facts: dict[str, float], merge: float) -> int:
    if "image_size" in facts:
        return max(1, ceil((facts["image_size"] / facts["patch_size"]) ** 2 / merge))
    return max(1, model_class(model.family).served.image_tokens)


def vision_tower(towers: tuple[Tower, ...]) -> Tower | None:
    """The tower that images go through, or None."""
    return next((t for t in towers if t.kind == "vision" and "patch_size" in t.facts), None)


def _wide(kind: object) -> int:
    return kind.intermediate * (3 if kind.gated else 2) if isinstance(kind, Dense) else 0
