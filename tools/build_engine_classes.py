"""Write which model classes engines have into src/vramcast/serving/engines/classes.json, from the engines' own wheels.

    pip download --no-deps vllm==0.33.0 sglang==0.5.23 lmdeploy==0.18.0 -d WHEELS
    python tools/build_engine_classes.py WHEELS

Nothing of an engine is imported: the lists are read from the syntax trees of the files named in ``SOURCES``. The same run asks
transformers ([torch] extra) which classes an engine's Transformers backend can take, into the rows of models/classes/rows.jsonl.
"""

import ast
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import transformers
from build_classes import write
from transformers.models.auto import modeling_auto

from vramcast.models.classes import ROWS
from vramcast.serving.engines.classes import FILE, Registry

SOURCES = {
    "vllm": ("vllm/model_executor/models/registry.py",),
    "sglang": ("sglang/srt/models/",),
    "lmdeploy": ("lmdeploy/pytorch/models/module_map.py", "lmdeploy/turbomind/supported_models.py"),
}
# what runs a class that the engine has not: vllm/model_executor/models/registry.py _try_resolve_transformers (any class whose
# attention can be set), sglang/srt/model_loader/utils.py resolve_transformers_arch (classes that say they are made for it)
BACKENDS = {"vllm": ("settable", "made"), "sglang": ("made",), "lmdeploy": ()}
# classes that left earlier and are a plugin's or untold since: registry.py of vLLM 0.11, _PREVIOUSLY_SUPPORTED_MODELS
LEFT_BEFORE = {
    "BartForConditionalGeneration": "0.10.2", "BartModel": "0.10.2", "MBartForConditionalGeneration": "0.10.2",
    "Florence2ForConditionalGeneration": "0.10.2", "Phi3SmallForCausalLM": "0.9.2",
}  # fmt: skip


def assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Names and values of a module's assignments, ``X.update(...)`` and ``X["key"] = ...`` among them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value
                elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                    yield target.value.id, ast.Dict(keys=[target.slice], values=[node.value])
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            yield node.target.id, node.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".update") and node.args:
            yield ast.unparse(node.func).removesuffix(".update"), node.args[0]


def words_of(value: ast.expr) -> dict[str, str]:
    """Keys of a mapping, written as braces or as ``dict(...)``, with their values where these are text."""
    if isinstance(value, ast.Dict):
        pairs = [(key.value, found) for key, found in zip(value.keys, value.values, strict=True) if isinstance(key, ast.Constant)]
        return {str(key): found.value if isinstance(found, ast.Constant) else "" for key, found in pairs}
    if isinstance(value, ast.Call):
        return {word.arg: "" for word in value.keywords if word.arg}
    return {}


def vllm_registry(texts: list[str]) -> dict[str, Any]:
    """The tables of vLLM's registry; drafts of speculative decoding are no models to serve."""
    tables: dict[str, dict[str, str]] = {name: words_of(value) for text in texts for name, value in assigned(ast.parse(text))}
    kept = [name for name in tables if name.endswith("_MODELS") and name.startswith("_")]
    apart = {"_SPECULATIVE_DECODING_MODELS", "_PREVIOUSLY_SUPPORTED_MODELS", "_OOT_SUPPORTED_MODELS", "_VLLM_MODELS"}
    left = LEFT_BEFORE | tables["_PREVIOUSLY_SUPPORTED_MODELS"]
    return {"classes": {arch for name in kept if name not in apart for arch in tables[name]}, "until": left}


def sglang_registry(texts: list[str]) -> dict[str, Any]:
    """Every ``EntryClass`` of the files of models."""
    found: set[str] = set()
    for text in texts:
        for name, value in assigned(ast.parse(text)):
            if name == "EntryClass":
                parts = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
                found |= {part.id for part in parts if isinstance(part, ast.Name)}
    return {"classes": found}


def lmdeploy_registry(texts: list[str]) -> dict[str, Any]:
    """The maps of both of LMDeploy's engines."""
    found = {word for text in texts for name, value in assigned(ast.parse(text)) if "MAP" in name or "ARCHS" in name
             for word in words_of(value)}  # fmt: skip
    return {"classes": {word for word in found if word[:1].isupper()}}


READERS = {"vllm": vllm_registry, "sglang": sglang_registry, "lmdeploy": lmdeploy_registry}


def registry_of(engine: str, wheel: Path) -> Registry:
    """What that wheel's files say."""
    with zipfile.ZipFile(wheel) as packed:
        names = [name for name in packed.namelist() if name.endswith(".py") and name.startswith(SOURCES[engine])]
        texts = [packed.read(name).decode() for name in names]
    found = READERS[engine](texts)
    return Registry(
        release=wheel.name.split("-")[1], source=", ".join(SOURCES[engine]), backend=BACKENDS[engine],
        classes=frozenset(found["classes"]), until=found.get("until", {}),
    )  # fmt: skip


def backend_of(kind: str) -> str:
    """How far a Transformers backend takes that model_type, in the words of ``Served.backend``."""
    first = [modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, modeling_auto.MODEL_MAPPING_NAMES]
    others = [
        mapping
        for name, mapping in sorted(vars(modeling_auto).items())
        if name.startswith("MODEL_FOR") and name.endswith("_NAMES")
    ]
    name = next((mapping[kind] for mapping in (*first, *others) if kind in mapping), None)
    built = getattr(transformers, name[0] if isinstance(name, tuple) else name, None) if name else None
    if built is None:
        return ""
    config = built.config_class
    if config is not None and getattr(config, "is_encoder_decoder", False):
        return "none"
    return "made" if built.is_backend_compatible() else "settable" if built._can_set_attn_implementation() else "none"


def main(folder: Path) -> None:
    """Write the table of engines and the column of the classes' rows."""
    found = {engine: registry_of(engine, next(folder.glob(f"{engine}-*.whl"))) for engine in SOURCES}
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(found, order="sorted"), indent=1) + b"\n")
    rows = {row["name"]: row for row in map(msgspec.json.decode, ROWS.read_bytes().splitlines())}
    for kind, row in rows.items():
        row["served"] = {**(row.get("served") or {}), "backend": backend_of(kind)}
    write(rows)
    print({engine: len(registry.classes) for engine, registry in found.items()})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
