"""What Unsloth's wrapper of vLLM sets besides what a row shows of a start.

Sources: unsloth/models/loader.py (max_lora_rank = 64), unsloth_zoo/vllm_utils.py load_vllm (FlashInfer where it is installed, but
with bitsandbytes; steps of vision models), unsloth/__init__.py (PYTORCH_CUDA_ALLOC_CONF).
"""

from typing import Any

Row = dict[str, Any]

# rank most of its GRPO notebooks set for text models, where a row only says that the notebook sets one; those of models that see
# leave the loader's default
NOTEBOOK_RANK = 32
LOADER_RANK = 64
LEAST_VISION_STEP = 8192
# the first vLLM that installs FlashInfer along
FLASHINFER_COMES_ALONG = (0, 11)


def started_by_unsloth(row: Row) -> bool:
    """Whether the row's words name it."""
    return "unsloth" in f"{row['settings'].get('enable_lora')} {row.get('quant')}".lower()


def options(row: Row, version: tuple[int, ...]) -> dict[str, Any]:
    """VLLM's flags that the wrapper sets."""
    settings, sees = row["settings"], "vlm" in row["kinds"]
    rank = settings.get("max_lora_rank") or (LOADER_RANK if sees else NOTEBOOK_RANK)
    found: dict[str, Any] = {"max_lora_rank": rank, "expandable_segments": True}
    if version >= FLASHINFER_COMES_ALONG and "bitsandbytes" not in str(row.get("quant")):
        found |= {"flashinfer_sampler": True, "attention_backend": "flashinfer"}
    if sees:
        found["max_num_batched_tokens"] = max(LEAST_VISION_STEP, settings.get("max_model_len") or 0)
    return found
