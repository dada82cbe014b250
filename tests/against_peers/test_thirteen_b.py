"""One question, Llama-2-13B with "mixed-precision AdamW", batch 1 and 1024 tokens, to which published tools answer 97 to 243 GiB.

Each answer is right for one recipe, and is reproduced here by naming that recipe. The figures are those the tools printed.
"""

import pytest

from vramcast.models.reading import read_model
from vramcast.training.forecast import TrainingForecast, forecast_training
from vramcast.units import GB, GiB
from vramcast.workload import Training

MODEL = "meta-llama/Llama-2-13b-hf"
# No tool counts the placeholders that Transformer Engine keeps, one a weight shape.
BARE_MEGATRON = {"framework": "megatron", "options": {"placeholders": False}}
FP32_AUTOCAST = {"framework": "pytorch", "param_dtype": "float32", "compute_dtype": "bfloat16"}
# (tool, what its recipe is here, GiB it prints, tolerance in %)
TOOLS = [
    (
        "torch MemTracker, fp32 and autocast, fused AdamW",
        FP32_AUTOCAST | {"options": {"update": "fused", "autocast": True}},
        193.97,
        0.2,
    ),
    (
        "torch MemTracker, the same, foreach AdamW",
        FP32_AUTOCAST | {"options": {"update": "foreach", "autocast": True}},
        242.4,
        0.1,
    ),
    (
        "torch MemTracker, pure bf16, foreach AdamW",
        {"framework": "pytorch", "param_dtype": "bfloat16", "options": {"update": "foreach"}},
        121.2,
        0.1,
    ),
    ("Megatron theoretical, 18 bytes per parameter", {"framework": "megatron"}, 225.2, 0.2),
    ("SimuMax, the same recipe", BARE_MEGATRON, 224.7, 0.2),
    (
        "xtuner, fp32 shards, second forward with gradients alive",
        {"framework": "torchtitan", "fsdp": 2, "checkpointing": "none", "accumulate": 2, "loss": "linear"},
        202.5,
        1.5,
    ),
    (
        "cookbook, 18 bytes and GPT activations: attention scores written out, dropout masks kept",
        {
            "framework": "megatron",
            "attention": "unfused",
            "options": {"hidden_dropout": 0.1, "attention_dropout": 0.1, "placeholders": False},
        },
        232.8,
        0.2,
    ),
    (
        "calculon, gradients in 16 bits, attention scores written out",
        BARE_MEGATRON | {"grad_dtype": "bf16", "attention": "unfused"},
        202.9,
        0.6,
    ),
    (
        "accelerate, the larger of its parts at 8 bytes per parameter",
        {"framework": "hf_trainer", "framework_version": "5.23"},
        95.8,
        1.5,
    ),
]


PURE_BF16 = {"framework": "pytorch", "param_dtype": "bfloat16"}
# (tool, what its recipe is here, terms it adds up, GiB it prints, tolerance in %): parts that are never alive together
SUMS = [
    (
        "Unsloth Studio, ten bytes, nothing recomputed",
        {"framework": "unsloth", "checkpointing": "none", "optimizer": "adamw", "options": {"update": "foreach"}},
        ("weights", "gradients", "optimizer", "temporaries", "activations"),
        126.7,
        0.8,
    ),
    (
        "llm-analysis, the larger of gradients and activations, less one embedding",
        BARE_MEGATRON,
        ("weights", "gradients", "optimizer", "master_weights"),
        216.6,
        0.8,
    ),
]


def answer(**recipe: object) -> TrainingForecast:
    question = Training(**({"model": MODEL, "micro_batch": 1, "seq": 1024} | recipe))
    return forecast_training(question, model=read_model(MODEL))


@pytest.mark.parametrize(("tool", "recipe", "printed", "tolerance"), TOOLS, ids=[t[0] for t in TOOLS])
def test_each_tool_is_right_for_its_recipe(tool: str, recipe: dict[str, object], printed: float, tolerance: float) -> None:
    peak = max(i.bytes for i in answer(**recipe).worst.instants)
    assert peak / GiB == pytest.approx(printed, rel=tolerance / 100), tool


def largest(recipe: dict[str, object]) -> dict[str, int]:
    """The maximum of each term over the step."""
    found: dict[str, int] = {}
    for instant in answer(**recipe).worst.instants:
        for term in instant.terms:
            found[term.name] = max(found.get(term.name, 0), term.bytes)
    return found


@pytest.mark.parametrize(("tool", "recipe", "terms", "printed", "tolerance"), SUMS, ids=[t[0] for t in SUMS])
def test_tools_that_add_up_what_is_not_alive_together(
    tool: str, recipe: dict[str, object], terms: tuple[str, ...], printed: float, tolerance: float
) -> None:
    parts = largest(recipe)
    assert sum(parts[t] for t in terms) / GiB == pytest.approx(printed, rel=tolerance / 100), tool


GPU_POOR = {"layers": 40, "hidden": 5120, "heads": 40, "ffn": 13824, "vocab": 32_000, "tokens": 1024}


def test_gpu_poor_adds_all_that_a_forward_writes_to_pure_bf16() -> None:
    """RahulSChand/gpu_poor at 05d18ab, src/App.js: weights and three more of their size in 16 bits, activations, 650 MiB.

    Its activations are tensors written, not tensors saved: each attention score counts as three (16-bit, float, 16-bit again),
    where eager attention keeps two of them; the rest of a layer is 32 h + 12 f bytes per token.
    """
    c = GPU_POOR
    parameters = 2 * c["vocab"] * c["hidden"] + c["layers"] * c["hidden"] * (4 * c["hidden"] + 3 * c["ffn"])
    scores = c["heads"] * c["tokens"] ** 2
    layer = 8 * scores + c["tokens"] * (32 * c["hidden"] + 12 * c["ffn"] + 8)
    assert (8 * parameters + c["layers"] * layer) / GiB + 650 / 1024 == pytest.approx(122.7, abs=0.02)

    parts = largest(PURE_BF16 | {"attention": "eager", "options": {"update": "fused"}})
    assert (parts["weights"] + parts["gradients"] + parts["optimizer"]) / (8 * parameters) == pytest.approx(1, abs=1e-4)
    flash = largest(PURE_BF16 | {"attention": "flash", "options": {"update": "fused"}})
    kept = (parts["activations"] - flash["activations"]) / c["layers"] / scores
    assert kept == pytest.approx(6, abs=0.1)  # not 8: backward never reads the raw scores


def test_the_peak_of_foreach_adamw_is_its_own_temporary() -> None:
    rank = answer(**FP32_AUTOCAST, options={"update": "foreach", "autocast": True}).worst
    assert rank.peak.name == "optimizer step"
    assert next(t.bytes for t in rank.peak.terms if t.name == "temporaries") == 4 * 13_015_864_320


def test_deepspeed_counts_the_fp32_gradients_of_its_step_and_not_what_they_are_copied_from() -> None:
    """Its estimator says 20 bytes per parameter for ZeRO-2 on one card; the step first flattens the gradients in 16 bits."""
    rank = answer(framework="deepspeed", zero=2, param_dtype="bf16").worst
    flattened = 2 * 13_015_864_320
    assert rank.peak.name == "optimizer step"
    assert (rank.peak.bytes - flattened) / GiB == pytest.approx(242.4, rel=0.006)


def test_adding_maxima_of_different_instants_gives_the_textbook_sum() -> None:
    """Weights 26, optimizer 156, gradients 26 and activations 14.5 add up to 222.5 GB, but are never alive together."""
    recipe = {"framework": "colossalai", "param_dtype": "bf16"}
    rank, parts = answer(**recipe).worst, largest(recipe)
    states = parts["weights"] + parts["gradients"] + parts["optimizer"] + parts["master_weights"]
    assert states / GB == pytest.approx(26 + 156 + 26, rel=0.002)
    textbook = states + 14.5 * GB
    assert textbook / GB == pytest.approx(222.5, rel=0.002)
    alive = max(i.bytes for i in rank.instants if i.name != "optimizer step")
    assert alive < 0.95 * textbook


def test_the_answer_says_which_recipe_it_is() -> None:
    reasons = {a.name: a.because for a in answer(framework="hf_trainer", framework_version="4.45").assumed}
    assert reasons["weights"] == "from_pretrained of transformers 4"
    assert reasons["update"] == "Trainer default optim"
