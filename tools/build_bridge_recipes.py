"""Writes truth/rows/bridge_recipes.json: what Megatron-Bridge's performance recipes set that its performance tables do not print.

    python tools/build_bridge_recipes.py PATH_OF_A_CLONE   # github.com/NVIDIA-NeMo/Megatron-Bridge, with its tags

One entry for each model, card and number format: the releases in order, each with what it recomputes, what CUDA graphs replay,
whether expert communication runs beside another micro-batch and whether experts run in one fused kernel a product (CuTe DSL,
behind Transformer Engine's op fuser); a release that changes nothing is left out. Sources: up to v0.5.1
scripts/performance/configs/*/*workload_base_configs.py, from v0.6.0 src/megatron/bridge/perf_recipes/*/*/*.py.
"""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

# Release -> the NeMo container that its performance tables name (docs/performance-summary-archive.md).
CONTAINERS = {
    "v0.2.0": "25.11", "v0.3.0": "26.02", "v0.3.1": "26.02.01", "v0.4.0": "26.04", "v0.4.2": "26.04.01", "v0.5.0": "26.06",
    "v0.5.1": "26.06.01", "v0.6.0": "26.08",
}  # fmt: skip
OUT = Path(__file__).parents[1] / "src/vramcast/truth/rows/bridge_recipes.json"
_OLD = re.compile(
    r"(?P<model>\w+?)(?:_(?P<task>PRETRAIN|SFT|LORA)(?:_CONFIG)?)?_(?P<card>GB300|GB200|B300|B200|H100)_(?P<rest>\w+)"
)
_FORMAT = re.compile(r"(BF16|FP8_CS|FP8_MX|FP8_SC|FP8_DS|NVFP4)")
_NEW = re.compile(
    r"def (\w+?)_(pretrain|sft|lora|peft)_\d+gpu_(gb300|gb200|b300|b200|h100)_(bf16|fp8cs|fp8mx|fp8ds|nvfp4)\w*_config\("
)


def git(clone: str, *words: str) -> str:
    """What a git command prints."""
    return subprocess.run(["git", "-C", clone, *words], capture_output=True, text=True, check=True).stdout


def presets(source: str) -> dict[str, dict[str, Any]]:
    """The presets of a file of WorkloadBaseConfig values, each with all it inherits. Read as data, never run."""
    known: dict[str, Any] = {}

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Call):
            own = {k.arg: value(k.value) for k in node.keywords if k.arg}
            base = value(node.args[0]) if node.args and getattr(node.func, "id", "") == "replace" else {}
            return (base or {}) | own
        if isinstance(node, ast.Name):
            return known.get(node.id)
        return ast.literal_eval(node) if not isinstance(node, (ast.Attribute, ast.JoinedStr, ast.BinOp)) else None

    for line in ast.parse(source).body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            known[line.targets[0].id] = value(line.value)
    return {name: found for name, found in known.items() if isinstance(found, dict) and not name.startswith("BASE")}


def facts(found: dict[str, Any]) -> dict[str, Any]:
    """What of a preset decides time and is not printed."""
    scope = found.get("cuda_graph_scope") or []
    scopes = [scope] if isinstance(scope, str) else scope
    graphs = found.get("cuda_graph_impl") or "none"
    own = {
        "again": list(found.get("recompute_modules") or []),
        "layers": found.get("recompute_num_layers"),
        "graphs": "none"
        if graphs == "none" or (not scopes and graphs == "transformer_engine")
        else "full"
        if graphs in ("local", "full_iteration")
        else "+".join(scopes),
        "overlap": bool(found.get("moe_a2a_overlap")),
        "dispatcher": found.get("moe_flex_dispatcher_backend"),
        "fused": bool(found.get("cutedsl_fused_grouped_mlp")),
    }
    return {name: size for name, size in own.items() if size not in (None, [], "none", False)}


def old_release(clone: str, tag: str) -> dict[str, dict[str, Any]]:
    """Model|card|format -> facts, from workload presets; a later variant of a preset replaces the first."""
    rows: dict[str, dict[str, Any]] = {}
    for path in git(clone, "ls-tree", "-r", "--name-only", tag, "scripts/performance/configs").split():
        if "workload_base_configs" not in path:
            continue
        for name, found in presets(git(clone, "show", f"{tag}:{path}")).items():
            told, form = _OLD.match(name), _FORMAT.search(name)
            if told and form:
                task = (told["task"] or ("sft" if "_SFT_" in name else "lora" if "_LORA_" in name else "pretrain")).lower()
                rows["|".join((told["model"].lower(), task, told["card"].lower(), form[1].lower().replace("_", "")))] = facts(
                    found
                )
    return rows


def new_release(clone: str, tag: str) -> dict[str, dict[str, Any]]:
    """The same from flat recipes: the assignments of each function, after those of its model's common function."""
    rows: dict[str, dict[str, Any]] = {}
    for path in git(clone, "ls-tree", "-r", "--name-only", tag, "src/megatron/bridge/perf_recipes").split():
        source = git(clone, "show", f"{tag}:{path}") if path.endswith(".py") else ""
        marks = list(_NEW.finditer(source))
        ends = [*(mark.start() for mark in marks[1:]), len(source)]
        for here, end in zip(marks, ends, strict=False):
            body = source[here.start() : end]
            found: dict[str, Any] = {}
            for name in (
                "recompute_modules",
                "recompute_num_layers",
                "cuda_graph_impl",
                "cuda_graph_scope",
                "moe_flex_dispatcher_backend",
            ):
                if told := re.search(rf"cfg\.model\.{name} = (.+)", body):
                    found[name] = ast.literal_eval(told[1].split("  #")[0])
            if "_enable_deepseek_transformer_engine_graph" in body or "_enable_transformer_engine_graph" in body:
                found |= {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": ["attn", "moe_router", "moe_preprocess"]}
            whole = bool(re.search(r"_full_iter\w*\(", body))
            if whole:
                found["cuda_graph_impl"] = "full_iteration"
            fuses = whole or "use_transformer_engine_op_fuser = True" in body or "_apply_nemotron_3_ultra_perf_defaults(" in body
            found["cutedsl_fused_grouped_mlp"] = fuses
            found["moe_a2a_overlap"] = (
                whole or "overlap_moe_expert_parallel_comm = True" in body or "overlap_moe_expert_parallel_comm=True" in body
            )
            rows["|".join((here[1], "lora" if here[2] == "peft" else here[2], here[3], here[4]))] = facts(found)
    return rows


def main() -> int:
    """Read every release, keep what changes."""
    clone = sys.argv[1]
    table: dict[str, dict[str, Any]] = {}
    for tag, container in CONTAINERS.items():
        read = new_release if tag >= "v0.6" else old_release
        for key, found in sorted(read(clone, tag).items()):
            releases = table.setdefault(key, {})
            last = list(releases.values())[-1] if releases else None
            own = ((last or {}) | found) if tag >= "v0.6" else found  # what a common function sets is not repeated in each recipe
            if own != last:
                releases[container] = own
    table = {key: found for key, found in table.items() if any(found.values()) and not re.search(r"_vl_|wan_|_vr?\d+_", key)}
    OUT.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(table.items())) + "\n}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
