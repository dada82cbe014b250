"""Forward FLOPs of small random models, counted by torch while transformers runs them, for a dozen families and more."""

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from vramcast.models.families import read_config
from vramcast.models.operations import Batch, Linear, operations
from vramcast.models.operations.counts import full_attention_flops

sys.path.insert(0, str(Path(__file__).parents[1] / "against_transformers"))
from test_caches import fields_of

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

TOKENS = 24
FAMILIES = [
    "llama", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "phi3", "gpt2", "gpt_neox", "opt", "bloom", "olmo2", "cohere",
    "starcoder2", "glm4", "granite", "stablelm", "falcon", "phi", "mixtral", "qwen2_moe", "qwen3_moe",
    "deepseek_v3", "deepseek_v2",
]  # fmt: skip


@pytest.mark.parametrize("model_type", FAMILIES)
def test_products_and_full_attention_equal_torchs_count(model_type: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from torch.utils.flop_counter import FlopCounterMode

    model, read = _built(transformers, model_type, fields_of(model_type))
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        model(input_ids=torch.zeros((1, TOKENS), dtype=torch.long), use_cache=False)
    batch = Batch(prefills=1, prefill_tokens=TOKENS, all_logits=True)
    products = sum(one.count * one.flops(batch) for one in operations(read) if isinstance(one, Linear))
    assert products + full_attention_flops(read, seq=TOKENS) == pytest.approx(counter.get_total_flops(), rel=ROTARY)


# transformers multiplies positions with frequencies by a matrix product: 2 * rotary width / 2 * tokens, once a pass.
ROTARY = 2e-3


def _built(transformers: Any, model_type: str, fields: dict[str, Any]) -> tuple[Any, Any]:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

    name = CLASSES[model_type] if isinstance(CLASSES[model_type], str) else CLASSES[model_type][0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = transformers.CONFIG_MAPPING[model_type](**fields)
        config._attn_implementation = "eager"
        model = getattr(transformers, name)(config).eval()
    return model, read_config({**fields, "model_type": model_type, "architectures": [name]})
