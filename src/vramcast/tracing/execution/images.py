"""The pixel inputs of a vision-language model, as its processor would make them: their shapes, and the tokens they stand for.

After transformers 5.23: the processors' ``__call__`` and each model's ``get_image_features``. Pixels are float32.
"""

from inspect import signature
from math import isqrt, prod
from typing import Any

import torch

from vramcast.errors import QuestionError, UnmodelledError
from vramcast.tracing.request import TraceRequest

_RATIOS = ("downsample_ratio", "pixel_shuffle_ratio")  # of a side, by which patches are joined before the decoder
_FACTOR = "downsample_factor"


def pixel_inputs(kind: Any, config: Any, request: TraceRequest, device: str) -> dict[str, torch.Tensor]:
    """The inputs of a batch whose sequences begin with ``request.images`` images each, for a model of class ``kind``.

    Raises QuestionError for images that the class or the sequence has no room for, UnmodelledError for a class whose images
    arrive in another form.
    """
    known = signature(kind.forward).parameters
    if not hasattr(config, "vision_config") or "pixel_values" not in known:
        raise QuestionError(f"{request.images} images for {kind.__name__}, which takes none: use --images 0")
    if "aspect_ratio_ids" in known:
        return _tiles(config, request, device)
    if "image_grid_thw" in known:
        pixels, tokens = _grid(config, request, device)
    else:
        pixels, tokens = _squares(kind, config, request, device)
    return _ids(config, request, tokens, device, known) | pixels


def _ids(config: Any, request: TraceRequest, tokens: int, device: str, known: Any) -> dict[str, torch.Tensor]:
    """Sequences that begin with their images' tokens, a word before each, and what says which tokens those are."""
    taken = (tokens + 1) * request.images
    if taken > request.seq:
        raise QuestionError(f"{request.images} images are {taken:,} tokens, a sequence has {request.seq:,}: use a longer --seq")
    marker = getattr(config, "image_token_id", None) or getattr(config, "image_token_index", None)
    row = torch.zeros(request.seq, dtype=torch.long)
    row[:taken].view(request.images, tokens + 1)[:, 1:] = marker
    ids = row.repeat(request.micro_batch, 1).to(device)
    kinds = (row == marker).long().repeat(request.micro_batch, 1)
    typed = {name: kinds.to(device) for name in ("token_type_ids", "mm_token_type_ids") if name in known}
    return {"input_ids": ids, "labels": ids, **typed}


def _grid(config: Any, request: TraceRequest, device: str) -> tuple[dict[str, torch.Tensor], int]:
    """Images of any size: all patches of a batch in rows, and each image's height and width in patches (Qwen-VL, GLM-4V)."""
    vision = config.vision_config
    merge = getattr(vision, "spatial_merge_size", 1)
    height, width = _sides(request.image_patches, merge)
    images = request.images * request.micro_batch
    pixels = getattr(vision, "in_channels", 3) * vision.temporal_patch_size * vision.patch_size**2
    return {
        "pixel_values": torch.empty(images * height * width, pixels, device=device),
        "image_grid_thw": torch.tensor([[1, height, width]]).repeat(images, 1).to(device),
    }, height * width // merge**2


def _sides(patches: int, merge: int) -> tuple[int, int]:
    """Height and width of an image of so many patches, both whole numbers of merged ones, as square as can be."""
    if not patches:
        raise QuestionError("images of any size: say how many patches one makes, as --image-patches 1024")
    merged, rest = divmod(patches, merge * merge)
    if rest:
        near = max(1, round(patches / merge**2)) * merge**2
        raise QuestionError(f"{patches} patches are no whole number of {merge} x {merge}: use --image-patches {near}")
    height = next(n for n in range(isqrt(merged), 0, -1) if merged % n == 0)
    return height * merge, merged // height * merge


def _squares(kind: Any, config: Any, request: TraceRequest, device: str) -> tuple[dict[str, torch.Tensor], int]:
    """Images that are all scaled to one square (LLaVA, Gemma 3, PaliGemma, InternVL, Llama 4)."""
    vision = config.vision_config
    size, patch = getattr(vision, "image_size", None), getattr(vision, "patch_size", None)
    size, patch = (n[0] if isinstance(n, list | tuple) else n for n in (size, patch))
    crops = hasattr(config, "image_grid_pinpoints") or vision.model_type in {"pixtral", "idefics3_vision", "smolvlm_vision"}
    if crops or not isinstance(size, int) or not isinstance(patch, int):
        raise UnmodelledError(f"the tracer does not know the form of images of {kind.__name__}: use vramcast train")
    side = size // patch
    if request.image_patches not in {0, side**2, side**2 + 1}:
        raise QuestionError(f"images of {kind.__name__} are {side} x {side} patches: leave --image-patches out")
    ratios = [getattr(c, name) for c in (config, vision) for name in _RATIOS if isinstance(getattr(c, name, None), float)]
    joined = int(side * prod(ratios[:1])) // (getattr(config, _FACTOR, None) or 1)
    tokens = getattr(config, "mm_tokens_per_image", None) or joined**2
    images = request.images * request.micro_batch
    return {"pixel_values": torch.empty(images, 3, size, size, device=device)}, tokens


def _tiles(config: Any, request: TraceRequest, device: str) -> dict[str, torch.Tensor]:
    """Images in tiles that the text attends to across (Llama 3.2): one token stands for each, and nothing is replaced."""
    vision, images, rows = config.vision_config, request.images, request.micro_batch
    tiles, size = vision.max_num_tiles, vision.image_size
    ids = torch.zeros(rows, request.seq, dtype=torch.long, device=device)
    return {
        "input_ids": ids,
        "labels": ids,
        "pixel_values": torch.empty(rows, images, tiles, 3, size, size, device=device),
        "aspect_ratio_ids": torch.ones(rows, images, dtype=torch.long, device=device),
        "aspect_ratio_mask": torch.ones(rows, images, tiles, dtype=torch.long, device=device),
        "cross_attention_mask": torch.ones(rows, request.seq, images, tiles, dtype=torch.long, device=device),
    }
