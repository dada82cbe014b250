"""Answer.AI's fsdp_qlora as programs: what its train.py was told for each row of the benchmark page of March 2024."""

from typing import Any

Row = dict[str, Any]


def fsdp_qlora_run(row: Row) -> dict[str, Any]:
    """Program, arguments and libraries of a row."""
    s = row["settings"]
    adapter = s["adapters"]
    arguments = {
        "quant": bool(s.get("quant")),
        "sharded": s["parallel"]["zero_stage"] == 3,
        "offload": bool(s.get("offload")),
        "micro_batch": s["micro_batch"],
        "seq": s["seq_len"],
        "lora": {
            "r": adapter["r"],
            "lora_alpha": adapter["alpha"],
            "lora_dropout": adapter["dropout"],
            "target_modules": adapter["targets"],
        },
    }
    return {"program": "fsdp_qlora", "arguments": arguments, "libraries": "fsdp-qlora"}
