"""Tables of n-grams (DeepSeek-V4.1's engram) that vLLM looks up in pinned host memory are no weights of a card."""

import json
from pathlib import Path
from typing import Any

from vramcast.hardware.accelerator import catalogue
from vramcast.serving.engines.base import answer_of
from vramcast.workload import Parallel, Serving

H200 = catalogue()["h200-sxm-141"]
ROWS = [384006168, 384016682]
RAW: dict[str, Any] = {
    "model_type": "deepseek_v41", "architectures": ["DeepseekV41ForCausalLM"], "dtype": "bfloat16",
    "vision_config": {"hidden_size": 1024},
    "text_config": {
        "model_type": "deepseek_v41_text", "vocab_size": 129280, "hidden_size": 5120, "moe_intermediate_size": 2304,
        "num_hidden_layers": 4, "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64,
        "q_lora_rank": 1280, "o_lora_rank": 1024, "o_groups": 8, "n_routed_experts": 8, "n_shared_experts": 1,
        "num_experts_per_tok": 6, "sliding_window": 128, "compress_ratios": [0, 0, 2, 2], "kv_source_layer_ids": [2],
        "index_source_layer_ids": [2], "index_n_heads": 32, "index_head_dim": 128, "index_topk": 512, "hc_mult": 4,
        "engram_layer_ids": [1, 3], "engram_num_embeddings": ROWS, "engram_max_ngram_size": 4, "engram_n_heads": 8,
        "engram_head_dim": 256,
    },
}  # fmt: skip


def test_their_bytes_are_taken_off_and_said(tmp_path: Path) -> None:
    """Two tables of 256 elements a row, 2 B each here: 366 GiB that no card holds."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(RAW))
    answer = answer_of(Serving(model=str(path), engine="vllm", context=4096, parallel=Parallel(tp=8)), card=H200)
    weights = next(term for term in answer.ranks[0].terms if term.name == "weights")
    tables = next(term for term in weights.terms if term.name == "tables on the host")
    assert tables.bytes == -2 * 256 * sum(ROWS)
    assert 0 < weights.bytes < 20 * 2**30
    assert "less 366.22 GiB in host memory" in weights.why
