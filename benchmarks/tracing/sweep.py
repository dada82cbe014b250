"""Forecast beside trace for many kinds of models: allocated bytes of one step of each recipe.

    python benchmarks/tracing/sweep.py                   # every kind, appended to sweep.jsonl beside this file
    python benchmarks/tracing/sweep.py gemma2 olmoe      # these kinds
    python benchmarks/tracing/sweep.py --again           # the forecasts once more, beside the traces that are there
    python benchmarks/tracing/sweep.py --page            # rewrite the table in docs/tracing.md from sweep.jsonl

Models have the widths of a published one and four layers, so that every part of a step is of real size and a trace takes
seconds. Each is trained in full, with LoRA and with QLoRA on all linear layers, with and without checkpointing, on 256 and 2,048
tokens, by the Trainer's own recipe. Needs the [torch] extra, no GPU.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vramcast.models.families import read_config
from vramcast.planning.tracing.request import training_request
from vramcast.tracing.allocator.replay import replay
from vramcast.tracing.allocator.settings import AllocatorSettings
from vramcast.tracing.execution.series import trace_each
from vramcast.tracing.execution.worker import versions
from vramcast.tracing.request import TraceRequest
from vramcast.training.forecast import forecast_training
from vramcast.workload import Adapter, Training

RESULTS = Path(__file__).with_name("sweep.jsonl")
PAGE = Path(__file__).parents[2] / "docs" / "tracing.md"
START, END = "<!-- sweep -->\n", "<!-- /sweep -->\n"
LAYERS = 4
METHODS, SEQUENCES, CHECKPOINTING = ("full", "lora", "qlora"), (256, 2048), ("none", "full")


def _sizes(hidden: int, inner: int, heads: int, kv: int, vocab: int, **more: object) -> dict[str, object]:
    shape = {"hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": heads, "num_key_value_heads": kv}
    return {**shape, "vocab_size": vocab, "num_hidden_layers": LAYERS, "pad_token_id": 0, **more}


KINDS: dict[str, dict[str, object]] = {
    "llama": _sizes(2048, 8192, 32, 8, 128256, head_dim=64, tie_word_embeddings=True),
    "mistral": _sizes(4096, 14336, 32, 8, 32000, sliding_window=1024),
    "qwen2": _sizes(3584, 18944, 28, 4, 152064),
    "qwen3": _sizes(1024, 3072, 16, 8, 151936, head_dim=128, tie_word_embeddings=True),
    "gemma2": _sizes(2304, 9216, 8, 4, 256000, head_dim=256, sliding_window=1024),
    "gemma3_text": _sizes(1152, 6912, 4, 1, 262144, head_dim=256, sliding_window=512),
    "phi3": _sizes(3072, 8192, 32, 32, 32064),
    "phi": _sizes(2560, 10240, 32, 32, 51200, partial_rotary_factor=0.4),
    "olmo2": _sizes(4096, 11008, 32, 32, 100352),
    "granite": _sizes(4096, 12800, 32, 8, 49155),
    "glm4": _sizes(4096, 13696, 32, 2, 151552, head_dim=128, partial_rotary_factor=0.5),
    "stablelm": _sizes(2560, 6912, 32, 32, 50304, partial_rotary_factor=0.25),
    "starcoder2": _sizes(3072, 12288, 24, 2, 49152),
    "cohere": _sizes(4096, 11008, 32, 8, 64000),
    "gpt_neox": _sizes(2048, 8192, 8, 8, 50304, rotary_pct=0.25, use_parallel_residual=True),
    "gpt2": {"n_embd": 1024, "n_head": 16, "n_layer": LAYERS, "vocab_size": 50257, "n_positions": 2048},
    "opt": {"hidden_size": 2048, "ffn_dim": 8192, "num_attention_heads": 32, "num_hidden_layers": LAYERS, "vocab_size": 50272},
    "mixtral": _sizes(2048, 4096, 32, 8, 32000, num_local_experts=8, num_experts_per_tok=2),
    "qwen3_moe": _sizes(
        2048, 6144, 32, 4, 151936, head_dim=128, moe_intermediate_size=768, num_experts=32, num_experts_per_tok=8,
    ),
    "olmoe": _sizes(2048, 1024, 16, 16, 50304, num_experts=32, num_experts_per_tok=8),
    "gpt_oss": _sizes(2880, 2880, 64, 8, 201088, head_dim=64, num_local_experts=8, num_experts_per_tok=4),
    "deepseek_v3": _sizes(
        2048, 10944, 16, 16, 102400, moe_intermediate_size=1408, n_routed_experts=16, num_experts_per_tok=6, n_shared_experts=2,
        q_lora_rank=None, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, first_k_dense_replace=1,
        n_group=1, topk_group=1,
    ),
    "deepseek_v2": _sizes(
        2048, 10944, 16, 16, 102400, moe_intermediate_size=1408, n_routed_experts=16, num_experts_per_tok=6, n_shared_experts=2,
        q_lora_rank=None, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, first_k_dense_replace=1,
    ),
    "glm4_moe": _sizes(
        4096, 10944, 96, 8, 151552, head_dim=128, moe_intermediate_size=1408, n_routed_experts=16, num_experts_per_tok=8,
        n_shared_experts=1, first_k_dense_replace=1, n_group=1, topk_group=1, partial_rotary_factor=0.5, use_qk_norm=True,
    ),
    "granitemoe": _sizes(1536, 512, 24, 8, 49155, num_local_experts=40, num_experts_per_tok=8),
    "bamba": _sizes(
        4096, 14336, 32, 8, 128000, attn_layer_indices=[1], mamba_n_heads=128, mamba_d_head=64, mamba_d_state=128,
        mamba_n_groups=1, mamba_expand=2,
    ),
    "lfm2": _sizes(
        2048, 8192, 32, 8, 65536, block_auto_adjust_ff_dim=False, layer_types=["conv", "conv", "full_attention", "conv"],
    ),
    "bert": {
        "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": LAYERS,
        "vocab_size": 30522, "max_position_embeddings": 2048, "architectures": ["BertForMaskedLM"],
    },
    "t5": {
        "d_model": 1024, "d_kv": 64, "d_ff": 4096, "num_heads": 16, "num_layers": LAYERS, "vocab_size": 32128,
        "decoder_start_token_id": 0, "architectures": ["T5ForConditionalGeneration"],
    },
}  # fmt: skip
SCANS = frozenset({"bamba"})  # run in plain torch here, where no kernels are installed

TIED = {"llama", "qwen3", "gemma2", "gemma3_text", "starcoder2", "cohere", "gpt2", "opt", "bert", "t5"}


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One point of the sweep, bytes."""

    kind: str
    method: str
    checkpointing: str
    seq: int
    traced: int = 0
    forecast: int = 0
    instant: str = ""
    error: str = ""

    @property
    def off(self) -> float:
        """The forecast over the trace, less 1."""
        return self.forecast / self.traced - 1 if self.traced else float("nan")


def asked(kinds: list[str]) -> Iterator[tuple[str, Training, TraceRequest, Result]]:
    """Every point, with its forecast."""
    for kind in kinds:
        config = {"model_type": kind, "tie_word_embeddings": kind in TIED, **KINDS[kind]}
        model = read_config(config)
        for method in METHODS:
            for checkpointing in CHECKPOINTING:
                for seq in SEQUENCES:
                    adapter = None if method == "full" else Adapter(rank=16)
                    question = Training(
                        model=kind, method=method, checkpointing=checkpointing, seq=seq, adapter=adapter, param_dtype="bfloat16"
                    )  # fmt: skip
                    request, _ = training_request(question, model, config, card=None, backend="cuda", layers=None)
                    as_run = msgspec.structs.replace(question, options={"scan": "torch"}) if kind in SCANS else question
                    rank = forecast_training(as_run, model=model).worst
                    point = Result(
                        kind=kind, method=method, checkpointing=checkpointing, seq=seq,
                        forecast=rank.allocated_bytes, instant=rank.peak.name,
                    )  # fmt: skip
                    yield kind, question, request, point


def main(kinds: list[str]) -> None:
    """Trace the kinds and append each point as soon as it is known."""
    points = list(asked(kinds or list(KINDS)))
    with RESULTS.open("ab") as file:
        if not file.tell():
            file.write(msgspec.json.encode({"versions": versions()}) + b"\n")
        for (*_, point), (_, result) in zip(points, trace_each(p[2] for p in points), strict=True):
            peak = replay(result.log, AllocatorSettings()).peak_allocated_bytes
            done = msgspec.structs.replace(point, traced=peak, error=result.error.partition(" at /")[0][:200])
            file.write(msgspec.json.encode(done) + b"\n")
            file.flush()
            print(f"{done.kind:12} {done.method:6} {done.checkpointing:5} {done.seq:5} {done.off:+7.1%} {done.error}", flush=True)


def latest() -> list[Result]:
    """The newest result of every point, in the order of the kinds."""
    lines = RESULTS.read_bytes().splitlines()[1:]
    found = {(r.kind, r.method, r.checkpointing, r.seq): r for r in (msgspec.json.decode(line, type=Result) for line in lines)}
    order = list(KINDS)
    return sorted(found.values(), key=lambda r: (order.index(r.kind), METHODS.index(r.method), r.checkpointing == "full", r.seq))


def table(results: list[Result]) -> str:
    """The page's table: one line per kind and method, the error of each setting."""
    settings = [(c, s) for c in CHECKPOINTING for s in SEQUENCES]
    lines = ["| model | method | " + " | ".join(f"{'recomputed' if c == 'full' else 'saved'}, {s:,}" for c, s in settings) + " |"]
    lines.append("|---" * (2 + len(settings)) + "|")
    for kind in dict.fromkeys(r.kind for r in results):
        for method in METHODS:
            found = {(r.checkpointing, r.seq): r for r in results if (r.kind, r.method) == (kind, method)}
            cells = [f"{found[s].off:+.1%}" if s in found and not found[s].error else "not traced" for s in settings]
            lines.append(f"| {kind} | {method} | " + " | ".join(cells) + " |")
    errors = sorted(abs(r.off) for r in results if not r.error)
    within = sum(e <= 0.03 for e in errors)
    lines.append(f"\n{within} of {len(errors)} points are within 3 %; the median error is {errors[len(errors) // 2]:.2%}.")
    return "\n".join(lines) + "\n"


def again() -> None:
    """Forecast every point that was traced once more."""
    known = {(r.kind, r.method, r.checkpointing, r.seq): r for r in latest()}
    points = [p for *_, p in asked(list(dict.fromkeys(r.kind for r in known.values())))]
    found = [(p, known.get((p.kind, p.method, p.checkpointing, p.seq))) for p in points]
    done = [msgspec.structs.replace(p, traced=old.traced, error=old.error) for p, old in found if old]
    first, *_ = RESULTS.read_bytes().splitlines()
    RESULTS.write_bytes(b"\n".join([first, *map(msgspec.json.encode, done)]) + b"\n")


def write_page() -> None:
    """Put the table between its marks."""
    before, rest = PAGE.read_text().split(START)
    _, after = rest.split(END)
    PAGE.write_text(before + START + table(latest()) + END + after)


if __name__ == "__main__":
    modes = {"--page": write_page, "--again": again}
    modes[sys.argv[1]]() if sys.argv[1:2] and sys.argv[1] in modes else main(sys.argv[1:])
