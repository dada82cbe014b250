"""Every release that changed a default, on both sides of its border: the last version before it, and the first with it.

The sources are in the frameworks' own modules (vramcast/training/frameworks), beside the border that each row holds.
"""

from typing import Any

import pytest

from vramcast import read_model
from vramcast.models.inventory import Model
from vramcast.training.optimizers.rules import optimizer, state_bytes
from vramcast.training.recipe.draft import flat
from vramcast.training.resolve import resolve
from vramcast.training.shape import Shape, shape_model
from vramcast.workload import Parallel, Training

DENSE = shape_model(Shape(layers=4, hidden=256, heads=8, kv_heads=2, ffn=1024, vocab=1000))
SPARSE = shape_model(Shape(layers=4, hidden=256, heads=8, kv_heads=2, vocab=1000, experts=4, expert_ffn=512))
FSDP1: dict[str, Any] = {"fsdp": 1, "gpus": 2, "parallel": Parallel(dp=2)}
FSDP2: dict[str, Any] = {**FSDP1, "fsdp": 2}
QLORA: dict[str, Any] = {"method": "qlora"}
TP: dict[str, Any] = {"gpus": 2, "parallel": Parallel(tp=2)}
TASK: dict[str, Any] = {"options": {"task": "dpo"}}
GRPO: dict[str, Any] = {"options": {"task": "grpo"}}

# framework, last version before, first version after, question, option, its value before and after
BORDERS: list[tuple[str, str, str, dict[str, Any], str, Any, Any]] = [
    ("hf_trainer", "4.25", "4.26", {}, "lazy_modules", False, True),
    ("hf_trainer", "4.26", "4.27", {}, "frees_gradients", False, True),
    ("hf_trainer", "4.26", "4.27", {}, "update", "loop", "foreach"),
    ("hf_trainer", "4.26", "4.27", {}, "foreach_twice", False, True),
    ("hf_trainer", "4.33", "4.34", {}, "foreach_twice", True, False),
    ("hf_trainer", "4.45", "4.46", {}, "logits_kept", False, True),
    ("hf_trainer", "4.47", "4.48", {}, "sdpa", False, True),
    ("hf_trainer", "4.49", "4.50", {}, "loss", "eager", "plain"),
    ("hf_trainer", "4.54", "4.55", {}, "update", "foreach", "fused"),
    ("hf_trainer", "4.57", "5.0", {}, "weights", "float32", "bfloat16"),
    ("hf_trainer", "4.57", "5.0", {}, "reentrant", True, False),
    ("hf_trainer", "4.57", "5.0", {}, "fused_experts", False, True),
    ("hf_trainer", "5.22", "5.23", FSDP2, "separate_ends", False, True),
    ("trl", "0.17", "0.18", GRPO, "frozen_copies", 1, 0),
    ("trl", "0.21", "0.22", {}, "checkpointing", "none", "full"),
    ("trl", "0.25", "0.26", QLORA, "adapter_dtype", "float32", "bfloat16"),
    ("trl", "0.25", "0.26", QLORA, "norm_weight", "float32", "bfloat16"),
    ("trl", "1.7", "1.8", {}, "loss", "plain", "row_chunks"),
    ("trl", "1.15", "1.16", TASK, "loss", "plain", "row_chunks"),
    ("torchtitan", "2024.5", "2024.6", {}, "holds_logits", "float32", ""),
    ("torchtitan", "2024.4", "2024.5", TP, "vocab_parallel", False, True),
    ("torchtitan", "2024.10", "2024.11", {"compute_dtype": "fp8"}, "scans", False, True),
    ("torchtitan", "2025.2", "2025.3", {"compute_dtype": "fp8"}, "scans", True, False),
    ("torchtitan", "2024.12", "2025.1", {}, "expandable", False, True),
    ("torchtitan", "2024.12", "2025.1", {}, "update", "foreach", "fused"),
    ("torchtitan", "2025.3", "2025.4", {"compile": True}, "loss", "plain", "compiled"),
    ("torchtitan", "2025.6", "2025.7", {}, "separate_ends", False, True),
    ("torchtitan", "2025.10", "2025.11", {"gpus": 2, "parallel": Parallel(pp=2)}, "keeps_outputs", True, False),
    ("torchtune", "2025.4", "2025.5", {}, "loss", "chunked", "linear_chunks"),
    ("trl", "0.29", "1.0", {"options": {"task": "grpo"}}, "loss", "token_logps_copied", "token_logps"),
    ("unsloth", "2024.3", "2024.4", {}, "checkpointing", "none", "offloaded"),
    ("unsloth", "2024.10", "2024.11", {}, "loss", "in_place", "linear"),
    ("llama_factory", "0.8.3", "0.9", FSDP1, "weights", "bfloat16", "float32"),
    ("ms_swift", "2.6", "3.0", QLORA, "unquantized", "float32", "bfloat16"),
    ("prime_rl", "2026.6", "2026.7", {}, "visits", False, True),
    ("prime_rl", "2026.6", "2026.7", {}, "checkpointing", "none", "offloaded"),
    ("prime_rl", "2026.1", "2026.2", {"options": {"task": "grpo"}}, "loss", "plain", "blocks"),
    ("prime_rl", "2026.7", "2026.8", {}, "loss", "plain", "blocks"),
    ("prime_rl", "2026.8", "2026.9", {"options": {"visits": False}}, "update", "foreach", "fused"),
    ("litgpt", "2023.12", "2024.1", QLORA, "quant_saves", "bfloat16", "float32"),
]


@pytest.mark.parametrize("row", BORDERS, ids=lambda row: f"{row[0]}-{row[2]}-{row[4]}")
def test_a_default_changes_at_its_release_and_not_before(row: tuple[str, str, str, dict[str, Any], str, Any, Any]) -> None:
    framework, before, after, fields, option, old, new = row
    model: Model = SPARSE if option == "fused_experts" else DENSE

    def value(version: str) -> Any:
        question = Training(model="x", framework=framework, framework_version=version, **fields)
        return flat(resolve(question, model)[0])[option]

    assert (value(before), value(after)) == (old, new)


@pytest.mark.parametrize(("name", "old"), [("bloom-560m", False), ("falcon-7b", False), ("gpt2", False), ("Llama-2-7b-hf", True)])
def test_old_classes_took_the_loss_of_their_16_bit_logits(name: str, old: bool) -> None:
    model = read_model(name, offline=True)

    def upcast(version: str) -> Any:
        return resolve(Training(model=name, framework="hf_trainer", framework_version=version), model)[0].loss.logits_upcast

    assert (upcast("4.48"), upcast("4.49")) == (old, True)


@pytest.mark.parametrize(
    ("name", "upcast"), [("Qwen/Qwen-1_8B", False), ("baichuan-inc/Baichuan2-7B-Base", False), ("internlm/internlm2-7b", True)]
)
def test_a_class_of_remote_code_keeps_its_own_loss_at_every_version(name: str, *, upcast: bool) -> None:
    model = read_model(name, offline=True)
    for version in ("4.40", "5.20"):
        loss = resolve(Training(model=name, framework="hf_trainer", framework_version=version), model)[0].loss
        assert (loss.kind, loss.logits_upcast) == ("eager", upcast)


def test_soap_keeps_factors_for_sides_of_up_to_ten_thousand() -> None:
    """max_precondition_dim (SOAP and Shampoo of pytorch-optimizer 4.1): both sides' factors at 10,000, one side's beyond it."""
    row = optimizer("soap")
    within, beyond = (state_bytes(row, (side, 16), width=4) - row.moments * side * 16 * 4 for side in (10_000, 10_001))
    assert within > 100 * beyond > 0
