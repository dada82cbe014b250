"""A report's adapter: its kind, and how many virtual tokens its count of trained parameters makes."""

import pytest

from vramcast.truth.rows.training_adapter import adapter_of

ARCH = {"layers": 28, "hidden": 3072, "kv_heads": 8, "head_dim": 128}


@pytest.mark.parametrize(
    ("method", "trained", "tokens"),
    [
        ("peft-prompt_tuning", 200 * 3072, 200),
        ("peft-prefixtuning", 200 * 2 * 28 * 1024, 200),
        ("peft-prompt_tuning", 200 * 3072 + 1, None),
        ("lora", 200 * 3072, None),
    ],
)
def test_virtual_tokens_follow_from_what_is_trained(method: str, trained: int, tokens: int | None) -> None:
    adapter = adapter_of({"method": method, "settings": {"adapters": {"trainable_params": trained}}, "arch": ARCH})
    assert adapter is not None
    assert adapter.sizes.get("num_virtual_tokens") == tokens


def test_a_full_run_has_no_adapter() -> None:
    assert adapter_of({"method": "full", "settings": {"adapters": {"r": 8}}}) is None
