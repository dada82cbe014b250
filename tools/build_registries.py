"""Write what engines have, release by release: classes and quantised weights, into src/vramcast/serving/engines/registries.json.

    python tools/build_registries.py CACHE

Every release that PyPI holds of vLLM, SGLang and LMDeploy is read once: the files named in ``FILES``, out of its source archive
or its wheel, are kept in CACHE, one JSON a release. Nothing of an engine is imported; lists are read from syntax trees. The same
run asks transformers ([torch] extra) which classes an engine's Transformers backend takes, into models/classes/rows.jsonl.
"""

import ast
import io
import re
import sys
import tarfile
import urllib.request
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import transformers
from build_classes import write
from transformers.models.auto import modeling_auto
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

from vramcast.models.classes import ROWS
from vramcast.serving.engines.base import parse_version
from vramcast.serving.engines.registries import FILE, Registry, Span

FILES = {
    "vllm": r"vllm/model_executor/(model_loader|models/(registry|__init__)|layers/quantization/__init__)\.py",
    "sglang": r"sglang/srt/(models/.*|layers/quantization/__init__|server_args)\.py",
    "lmdeploy": r"lmdeploy/(pytorch/models/module_map|turbomind/supported_models|pytorch/supported_models)\.py",
}
# what runs a class that the engine has not: vllm/model_executor/models/registry.py _try_resolve_transformers (any class whose
# attention can be set), sglang/srt/model_loader/utils.py resolve_transformers_arch (classes that say they are made for it)
BACKENDS = {"vllm": ("settable", "made"), "sglang": ("made",)}
# lists that stand in no table: lmdeploy/pytorch/config.py QuantizationConfig.from_config, messages.py model_format of 0.18;
# text-generation-inference launcher/src/main.rs Quantization of 3.3
TYPED = {
    "lmdeploy": ("awq", "gptq", "fp8", "mxfp4", "compressed-tensors", "smooth_quant"),
    "tgi": ("awq", "compressed-tensors", "eetq", "exl2", "gptq", "marlin", "bitsandbytes", "fp8"),
}
# the two tables of docs/source/models/supported-models.md, commit 00b6d5a25: TensorRT-LLM's wheels are of two gigabytes
_OF_TENSORRT_LLM = (
    "Afmoe BertForSequenceClassification Cohere2 DeciLM DeepSeekV2 DeepseekV2 DeepseekV3 DeepseekV32 DeepseekV4 Exaone "
    "Exaone4 ExaoneMoE Gemma3 Gemma3nForConditionalGeneration Gemma4ForConditionalGeneration "
    "Gemma4UnifiedForConditionalGeneration Gemma4Assistant Glm4Moe Glm4MoeLite GlmMoeDsa Granite GraniteMoeHybrid GptOss "
    "HunYuanDense HunYuanDenseV1 HunYuanMoE HunYuanMoEV1 InternLM3 InklingForConditionalGeneration "
    "KimiK25ForConditionalGeneration Laguna Llama Llama4ForConditionalGeneration MiniCPMV4_6ForConditionalGeneration "
    "MiniMaxM2 MiniMaxM3SparseForConditionalGeneration MiniMaxM3Sparse Mistral Mixtral MllamaForConditionalGeneration "
    "Nemotron NemotronH NemotronNAS Olmo3 OpenELM Phi3 Qwen2 Qwen2ForProcessRewardModel Qwen2ForRewardModel Qwen3 "
    "Qwen3ForTextEmbedding Qwen3Moe Qwen3Next Qwen3_5Moe SeedOss SkyworkR1V2ForConditionalGeneration SmolLM3 Step3p5 "
    "Step3p7ForConditionalGeneration Exaone4_5_ForConditionalGeneration Gemma3ForConditionalGeneration HCXVision "
    "LlavaLlamaModel LlavaNextForConditionalGeneration Mistral3ForConditionalGeneration NemotronH_Nano_VL_V2 Phi4MM "
    "Qwen2VLForConditionalGeneration Qwen2_5_VLForConditionalGeneration Qwen3VLForConditionalGeneration "
    "Qwen3VLMoeForConditionalGeneration Cosmos3ForConditionalGeneration Qwen3_5ForConditionalGeneration "
    "Qwen3_5MoeForConditionalGeneration"
)
_TABLES = re.compile(r"MODELS$|MODEL_REGISTRY$|FALLBACK_MODEL$|MODULE_MAP|ARCHS")
_NOT_SERVED = ("SPECULATIVE", "PREVIOUSLY", "OOT", "UNSUPPORTED", "PARTIALLY", "ROCM")
_OTHER_CHIPS = ("is_npu", "is_cpu", "is_xpu", "is_mps", "is_hpu")


def releases(engine: str, folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Every release with the texts of its files, fetched where the cache lacks them."""
    listing = _asked(f"https://pypi.org/simple/{engine}/", accept="application/vnd.pypi.simple.v1+json")
    found: dict[str, str] = {}
    for file in sorted(msgspec.json.decode(listing)["files"], key=lambda one: not one["filename"].endswith(".tar.gz")):
        name = file["filename"]
        version = name.removesuffix(".tar.gz").rpartition("-")[2] if name.endswith(".tar.gz") else name.split("-")[1]
        if not re.search(r"(rc|dev|a|b)\d", version) and not re.search(r"win|aarch64", name):
            found.setdefault(version, file["url"])
    order = sorted(found.items(), key=lambda one: parse_version(one[0], engine))
    for version, url in order:
        kept = folder / f"{engine}-{version}.json"
        if not kept.is_file():
            kept.write_bytes(msgspec.json.encode(dict(_files(url, re.compile(FILES[engine])))))
        yield version, msgspec.json.decode(kept.read_bytes())


def _asked(url: str, accept: str = "*/*") -> bytes:
    request = urllib.request.Request(url, headers={"accept": accept})
    with urllib.request.urlopen(request, timeout=180) as reply:
        return bytes(reply.read())


class _Remote(io.RawIOBase):
    """A file behind an address, of which parts are asked: a wheel of 400 MB gives its list and three files."""

    def __init__(self, url: str) -> None:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=60) as reply:
            self.url, self.size, self.place = url, int(reply.headers["content-length"]), 0

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """The place of the next byte."""
        return self.place

    def seek(self, offset: int, whence: int = 0) -> int:
        """As files do."""
        self.place = offset + (0, self.place, self.size)[whence]
        return self.place

    def read(self, size: int = -1) -> bytes:
        """The bytes of one request."""
        end = self.size if size < 0 else min(self.size, self.place + size)
        if end <= self.place:
            return b""
        request = urllib.request.Request(self.url, headers={"range": f"bytes={self.place}-{end - 1}"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            found = bytes(reply.read())
        self.place += len(found)
        return found


def _files(url: str, wanted: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    if url.endswith(".whl"):
        with zipfile.ZipFile(_Remote(url)) as wheel:  # type: ignore[arg-type]
            for name in filter(wanted.fullmatch, wheel.namelist()):
                yield name, wheel.read(name).decode()
        return
    with tarfile.open(fileobj=io.BytesIO(_asked(url))) as archive:
        for member in archive:
            name = member.name.partition("/")[2].removeprefix("python/")
            if wanted.fullmatch(name) and (text := archive.extractfile(member)):
                yield name, text.read().decode()


def assigned(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names and values of assignments, ``X.update(...)`` and ``X["key"] = ...`` among them, but for chips that are no GPUs."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and _of_other_chips(ast.unparse(node.test)):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        for target in targets:
            value = node.value  # type: ignore[attr-defined]
            if isinstance(target, ast.Name) and value is not None:
                yield target.id, value
            elif isinstance(target, ast.Subscript):
                yield ast.unparse(target.value), ast.Dict(keys=[target.slice], values=[value])
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".update") and node.args:
            yield ast.unparse(node.func).removesuffix(".update"), node.args[0]
        yield from assigned(node)


def _of_other_chips(test: str) -> bool:
    return any(chip in test for chip in _OTHER_CHIPS) and "cuda" not in test and "hip" not in test


def words_of(value: ast.expr) -> set[str]:
    """Words of a list, a ``Literal[...]``, a mapping's keys (in braces or as ``dict(...)``), and what is joined into them."""
    if isinstance(value, ast.Subscript):
        return words_of(value.slice)
    if isinstance(value, ast.Dict):
        own = {key.value for key in value.keys if isinstance(key, ast.Constant)}
        return own.union(*(words_of(part) for key, part in zip(value.keys, value.values, strict=True) if key is None))
    if isinstance(value, ast.Call):
        return {word.arg for word in value.keywords if word.arg}
    if isinstance(value, ast.List | ast.Tuple | ast.Set):
        return {part.value for part in value.elts if isinstance(part, ast.Constant)}
    return set()


@cache  # most files stay as they are from release to release
def _classes_in(text: str) -> frozenset[str]:
    found: set[str] = set()
    for name, value in assigned(ast.parse(text.lstrip("\ufeff"))):
        if name == "EntryClass":
            parts = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
            found |= {part.id for part in parts if isinstance(part, ast.Name)}
        elif re.search(r"MODELS$|MODEL_REGISTRY$|FALLBACK_MODEL$|MODULE_MAP|ARCHS", name) and not any(
            mark in name for mark in _NOT_SERVED
        ):
            found |= {word for word in words_of(value) if word[:1].isupper()}
    return frozenset(found)


def classes_of(texts: dict[str, str]) -> set[str]:
    """The architectures of one release."""
    marks = ("EntryClass", "MODELS", "MODEL_REGISTRY", "FALLBACK_MODEL", "MODULE_MAP", "ARCHS")
    return set().union(*(_classes_in(text) for text in texts.values() if any(mark in text for mark in marks)))


def methods_of(texts: dict[str, str]) -> set[str]:
    """The quantised weights that one release loads."""
    found: set[str] = set()
    for path, text in texts.items():
        if path.endswith(("quantization/__init__.py", "server_args.py")):
            for name, value in assigned(ast.parse(text.lstrip("\ufeff"))):
                if re.search(
                    r"QUANTIZATION_METHODS$|^QuantizationMethods$|QUANTIZATION_CONFIG_REGISTRY$|QUANTIZATION_CHOICES$", name
                ):
                    found |= set() if "DEPRECATED" in name or "CPU" in name else {str(word) for word in words_of(value)}
    return found


def spans(held: dict[str, set[str]]) -> dict[str, Span]:
    """From which release to which each word was there; "" where the first read had it, and where the newest has it."""
    order = [version for version in held if held[version]]
    found: dict[str, Span] = {}
    for word in sorted(set().union(*held.values())):
        there = [version for version in order if word in held[version]]
        found[word] = ("" if there[0] == order[0] else there[0], "" if there[-1] == order[-1] else there[-1])
    return found


def registry_of(engine: str, folder: Path) -> Registry:
    """What all releases of one engine say."""
    read = dict(releases(engine, folder))
    classes = {version: classes_of(texts) for version, texts in read.items()}
    methods = {version: methods_of(texts) for version, texts in read.items()} if engine not in TYPED else {}
    return Registry(
        release=next(reversed(read)), backend=BACKENDS.get(engine, ()), classes=spans(classes), like_endings=engine == "vllm",
        methods=spans(methods) if methods else dict.fromkeys(TYPED[engine], ("", "")),
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
    """Write the tables of engines and the column of the classes' rows."""
    folder.mkdir(exist_ok=True)
    found: dict[str, Any] = {engine: registry_of(engine, folder) for engine in FILES}
    own = {re.sub(r"_[48]bit$", "", word) for word in AUTO_QUANTIZATION_CONFIG_MAPPING}
    found["transformers"] = Registry(release=transformers.__version__, methods=dict.fromkeys(sorted(own), ("", "")))
    written = {word if re.search(r"For[A-Z]|Model$|_V2$", word) else f"{word}ForCausalLM" for word in _OF_TENSORRT_LLM.split()}
    found["tensorrt_llm"] = Registry(release="1.3", classes=dict.fromkeys(sorted(written), ("", "")))
    found["tgi"] = Registry(release="3.3", methods=dict.fromkeys(TYPED["tgi"], ("", "")))
    FILE.write_bytes(msgspec.json.encode(found, order="sorted").replace(b'"],"', b'"],\n"') + b"\n")
    rows = {row["name"]: row for row in map(msgspec.json.decode, ROWS.read_bytes().splitlines())}
    for kind, row in rows.items():
        row["served"] = {**(row.get("served") or {}), "backend": backend_of(kind)}
    write(rows)
    for engine, registry in found.items():
        print(engine, registry.release, len(registry.classes), "classes", len(registry.methods), "methods")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
