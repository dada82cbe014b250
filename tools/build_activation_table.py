"""Write truth/traced/activations.jsonl: saved bytes and temporaries of one layer of each kind, traced, with the versions.

    python tools/build_activation_table.py [kind[/part of a variant] ...]      # for example: llama mixtral/lora

The first line holds the versions of the libraries, each other line one row. Needs the [torch] extra, no GPU.

Each row is one traced training step of a three-layer model of real structure and small width;
the figures are those of its middle layer, and of what stands outside the layers. The activation formulas of the training
forecast are tested against these rows.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vramcast.tracing.execution.series import trace_each
from vramcast.tracing.execution.worker import versions
from vramcast.tracing.layers import layer_cost, outside_cost
from vramcast.tracing.request import TraceRequest, TraceResult
from vramcast.workload import Adapter

TABLE = Path(__file__).parents[1] / "truth" / "traced" / "activations.jsonl"
LAYERS = 3
WIDTHS = {"hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 4096}
_MOE = WIDTHS | {"moe_intermediate_size": 256, "num_experts": 16, "num_experts_per_tok": 4}

KINDS: dict[str, dict[str, object]] = {
    "llama": WIDTHS,
    "mistral": WIDTHS | {"head_dim": 96, "sliding_window": 256},
    "qwen2": WIDTHS,
    "qwen3": WIDTHS | {"head_dim": 128},
    "gemma": WIDTHS | {"head_dim": 128},
    "gemma2": WIDTHS | {"head_dim": 128, "sliding_window": 256},
    "gemma3_text": WIDTHS | {"head_dim": 128, "sliding_window": 256},
    "phi3": WIDTHS | {"pad_token_id": 0},
    "olmo2": WIDTHS,
    "granite": WIDTHS,
    "stablelm": WIDTHS,
    "starcoder2": WIDTHS,
    "glm4": WIDTHS | {"head_dim": 64, "pad_token_id": 0},
    "cohere": WIDTHS,
    "falcon": {
        "hidden_size": 512, "num_attention_heads": 8, "num_kv_heads": 4, "vocab_size": 4096, "new_decoder_architecture": True,
    },
    "gpt_neox": {k: v for k, v in WIDTHS.items() if k != "num_key_value_heads"},
    "gpt2": {"n_embd": 512, "n_head": 8, "vocab_size": 4096},
    "phi": WIDTHS,
    "mixtral": WIDTHS | {"num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen3_moe": _MOE | {"head_dim": 128},
    "qwen2_moe": _MOE | {"shared_expert_intermediate_size": 512},
    "olmoe": WIDTHS | {"intermediate_size": 256, "num_experts": 16, "num_experts_per_tok": 4},
    "gpt_oss": WIDTHS | {"head_dim": 64, "intermediate_size": 512, "num_local_experts": 8, "num_experts_per_tok": 4},
    "deepseek_v3": _MOE | {
        "num_key_value_heads": 8, "n_routed_experts": 16, "n_group": 4, "topk_group": 2, "n_shared_experts": 1,
        "q_lora_rank": 192, "kv_lora_rank": 128, "qk_rope_head_dim": 32, "qk_nope_head_dim": 64, "v_head_dim": 64,
        "first_k_dense_replace": 0,
    },
    "mamba2": {"hidden_size": 512, "num_heads": 16, "head_dim": 64, "state_size": 64, "vocab_size": 4096, "n_groups": 1},
}  # fmt: skip

_LORA = Adapter(rank=8)
_VARIANTS: tuple[tuple[str, dict[str, object]], ...] = (
    ("bf16", {}),
    ("bf16 eager attention", {"attention": "eager"}),
    ("bf16 efficient attention", {"attention_kernels": ("efficient", "math")}),
    ("bf16 checkpointed", {"checkpointing": "full"}),
    ("fp32", {"param_dtype": "float32"}),
    ("fp32 weights, bf16 autocast", {"param_dtype": "float32", "autocast": "bfloat16"}),
    ("fp32 weights, bf16 autocast, checkpointed", {"param_dtype": "float32", "autocast": "bfloat16", "checkpointing": "full"}),
    ("bf16 weights, bf16 autocast", {"autocast": "bfloat16"}),
    ("bf16 lora", {"adapter": _LORA}),
    ("bf16 lora, bf16 autocast", {"adapter": _LORA, "autocast": "bfloat16"}),
    ("nf4 lora, bf16 autocast", {"adapter": _LORA, "autocast": "bfloat16", "quant": "nf4"}),
)
_REFUSED = {"mamba2": {"adapter": Adapter(rank=8, targets=("in_proj",))}}  # PEFT refuses the other projection
_SHAPES = ((1, 512), (2, 512), (2, 1024))
_ONE_SHAPE = frozenset(name for name, _ in _VARIANTS[1:])  # the plain variant alone is traced in every shape
_LAYER_PATHS = ("model.layers.{}", "gpt_neox.layers.{}", "transformer.h.{}", "backbone.layers.{}")


def requests(kinds: list[str]) -> Iterator[tuple[str, str, TraceRequest]]:
    """Every kind in every variant and shape."""
    for kind in kinds:
        layers = {"n_layer" if kind == "gpt2" else "num_hidden_layers": LAYERS}
        config = {"model_type": kind, **KINDS[kind], **layers}
        for name, given in _VARIANTS:
            options = given | _REFUSED.get(kind, {}) if "adapter" in given else given
            for batch, seq in _SHAPES[1:2] if name in _ONE_SHAPE else _SHAPES:
                shape = {"micro_batch": batch, "seq": seq, "steps": 1, "optimizer": "sgd"}
                yield kind, name, msgspec.convert({"config": config, **shape, **_plain(options)}, TraceRequest)


def row(kind: str, variant: str, request: TraceRequest, result: TraceResult) -> dict[str, object]:
    """One row of the table."""
    asked = msgspec.to_builtins(request)
    about = {"kind": kind, "variant": variant, "config": asked.pop("config"), "request": asked}
    if result.error:
        return about | {"error": result.error.partition(" at /")[0]}
    wrapped = "base_model.model." if request.adapter else ""
    paths = [wrapped + p for p in _LAYER_PATHS]
    used = next(p for p in paths if any(a.module.startswith(p.format(1)) for a in result.log.allocations))
    inside = layer_cost(result.log, used.format(1))
    outside = outside_cost(result.log, tuple(used.format(i) for i in range(LAYERS)))
    return about | {"attention": result.attention, "layer": inside, "outside": outside}


def main(wanted: list[str]) -> None:
    """Trace what was asked for (default: all) and write the table after each kind; other rows are kept."""
    asked = [r for r in requests(list(KINDS)) if not wanted or any(_names(w, *r[:2]) for w in wanted)]
    rows = [r for r in _existing() if wanted and not any(_names(w, str(r["kind"]), str(r["variant"])) for w in wanted)]
    done = ""
    for (kind, variant, _), (request, result) in zip(asked, trace_each(r for _, _, r in asked), strict=True):
        if done and kind != done:
            _write(rows)
        done = kind
        rows.append(row(kind, variant, request, result))
        print(f"{kind:14} {variant:44} {request.micro_batch}x{request.seq} {result.seconds:5.2f} s {result.error}", flush=True)
    _write(rows)


def _names(wanted: str, kind: str, variant: str) -> bool:
    """Whether an argument asks for this kind and variant."""
    name, _, part = wanted.partition("/")
    return name == kind and part in variant


def _write(rows: list[dict[str, object]]) -> None:
    kinds, variants = list(KINDS), [name for name, _ in _VARIANTS]
    ordered = sorted(rows, key=lambda r: (kinds.index(str(r["kind"])), variants.index(str(r["variant"]))))
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_bytes(b"\n".join(map(msgspec.json.encode, [{"versions": versions()}, *ordered])) + b"\n")


def _existing() -> list[dict[str, object]]:
    return [msgspec.json.decode(line) for line in TABLE.read_bytes().splitlines()[1:]] if TABLE.exists() else []


def _plain(options: dict[str, object]) -> dict[str, object]:
    return {k: msgspec.to_builtins(v) for k, v in options.items()}


if __name__ == "__main__":
    main(sys.argv[1:])
