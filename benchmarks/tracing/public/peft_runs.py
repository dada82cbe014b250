"""PEFT's method comparison as programs: each row's adapter with its experiment's settings, all rows with the same batches."""

from typing import Any

Row = dict[str, Any]
# Read off the rows, the same for all twenty: seed, data and tokenizer are. Samples stand in buckets of eighty, the longest first,
# and the cache is emptied before a bucket begins, after its shortest samples. No batch is longer than 768 tokens; the longest
# of those drawn must be about 695, and the one after it no longer than 440.
_SHORTEST, _LONGEST, _NEXT = 120, 695, 400
_VIRTUAL = {"task_type": "CAUSAL_LM"}
# experiments/*/adapter_config.json where a row does not state it; each gives the row's count of trained parameters.
_ADAPTERS: dict[str, Row] = {
    "peft-adalora": {"peft_type": "ADALORA", "init_r": 64, "target_r": 32, "tinit": 200, "tfinal": 500, "total_step": 5000},
    "peft-boft": {"peft_type": "BOFT"},
    "peft-ia3": {"peft_type": "IA3"},
    "peft-ln_tuning": {"peft_type": "LN_TUNING"},
    "peft-loha": {"peft_type": "LOHA", "r": 32},
    "peft-lokr": {"peft_type": "LOKR", "r": 32, "decompose_factor": 4},
    "lora": {"peft_type": "LORA"},
    "peft-miss": {"peft_type": "MISS", "r": 64},
    "peft-oft": {"peft_type": "OFT", "r": 32, "oft_block_size": 0},
    "peft-prefixtuning": {"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 200, **_VIRTUAL},
    "peft-prompt_tuning": {"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 200, **_VIRTUAL},
    "peft-ptuning": {"peft_type": "P_TUNING", "num_virtual_tokens": 20, "encoder_hidden_size": 3072, **_VIRTUAL},
    "peft-trainable_tokens": {"peft_type": "TRAINABLE_TOKENS", "token_indices": [128000, 128001]},
    "peft-vera": {"peft_type": "VERA"},
    "peft-vblora": {"peft_type": "VBLORA"},
}
_WHOLE_MODEL = ("LN_TUNING", "IA3", "PREFIX_TUNING", "PROMPT_TUNING", "P_TUNING")  # PEFT finds what they change itself


def peft_run(row: Row) -> dict[str, Any]:
    """Program, arguments and libraries of a row."""
    arguments = {
        "adapter": _adapter(row),
        "optimizer": row["settings"]["optimizer"],
        "micro_batch": row["settings"]["micro_batch"],
        "lengths": [_SHORTEST, _LONGEST, _NEXT],
    }
    return {"program": "peft_comparison", "arguments": arguments, "libraries": "peft-2026", "steps": 3}


def _adapter(row: Row) -> Row | None:
    if row["method"] == "full":
        return None
    stated = row["settings"]["adapters"]
    adapter = dict(_ADAPTERS[row["method"]])
    if row["method"] == "lora":
        adapter |= {"r": stated["r"], "lora_alpha": stated["alpha"], "use_dora": stated["use_dora"]}
    if adapter["peft_type"] not in _WHOLE_MODEL:
        adapter["target_modules"] = stated["targets"]
    return adapter
