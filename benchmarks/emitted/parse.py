"""The parsers of engines and frameworks themselves, on what ``benchmarks/emitted/write.py`` wrote. Runs where one is installed.

    python benchmarks/emitted/parse.py IN.json vllm [PATH ...]        prints a JSON line: version, accepted, refused with why

Needs no GPU and not vramcast: vLLM's and SGLang's argument parsers, torchtitan's ConfigManager, accelerate's loader, axolotl's
pydantic schema, LLaMA-Factory's argument classes, Megatron's argument groups. ``PATH``: where packages lie that are not
installed.
"""

import argparse
import contextlib
import io
import json
import shlex
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any


def _vllm(entry: dict[str, Any]) -> None:
    from vllm import platforms
    from vllm.platforms.cpu import CpuPlatform

    platforms._current_platform = platforms.current_platform = CpuPlatform()
    from vllm.entrypoints.common.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    words = entry["words"][entry["words"].index("serve") + 1 :]
    make_arg_parser(FlexibleArgumentParser()).parse_args(words)


def _sglang(entry: dict[str, Any]) -> None:
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    parser.parse_args(entry["words"][entry["words"].index("sglang.launch_server") + 1 :])


def _torchtitan(entry: dict[str, Any]) -> None:
    from torchtitan.config import ConfigManager

    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(entry["text"])
        file.flush()
        ConfigManager().parse_args(["--job.config_file", file.name])


def _accelerate(entry: dict[str, Any]) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(entry["text"])
        file.flush()
        load_config_from_file(file.name)


def _axolotl(entry: dict[str, Any]) -> None:
    import yaml
    from axolotl.utils.schemas.config import AxolotlInputConfig

    given = yaml.safe_load(entry["text"])
    AxolotlInputConfig(**given)
    unknown = sorted(set(given) - set(AxolotlInputConfig.model_fields))
    if unknown:
        raise ValueError(f"no such keys: {unknown}")


def _llama_factory(entry: dict[str, Any]) -> None:
    import yaml
    from llamafactory.hparams import DataArguments, FinetuningArguments, GeneratingArguments, ModelArguments
    from transformers import HfArgumentParser, Seq2SeqTrainingArguments

    given = yaml.safe_load(entry["text"]) | {"output_dir": "out", "bf16": False, "dataset": "identity"}
    classes = (ModelArguments, DataArguments, Seq2SeqTrainingArguments, FinetuningArguments, GeneratingArguments)
    HfArgumentParser(classes).parse_dict(given)


def _megatron(entry: dict[str, Any]) -> None:
    from megatron.training.arguments import add_megatron_arguments

    words = shlex.split(entry["text"].replace("\\\n", " "), comments=True)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_megatron_arguments(parser)
    parser.parse_args(words[words.index("pretrain_gpt.py") + 1 :])


PARSERS: dict[str, tuple[str, Callable[[dict[str, Any]], None]]] = {
    "vllm": ("vllm", _vllm), "sglang": ("sglang", _sglang), "torchtitan": ("torchtitan", _torchtitan),
    "accelerate": ("accelerate", _accelerate), "axolotl": ("axolotl", _axolotl),
    "llama_factory": ("llamafactory", _llama_factory), "megatron": ("megatron-core", _megatron),
}  # fmt: skip


def _said(read: Callable[[dict[str, Any]], None], entry: dict[str, Any]) -> str:
    """Why the parser refuses, "" where it does not."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            read(entry)
    except SystemExit as stop:
        return "" if not stop.code else (told.getvalue().strip().splitlines() or ["refused"])[-1][:300]
    except Exception as error:  # whatever a foreign parser raises is its refusal
        return f"{type(error).__name__}: {str(error)[:300]}"
    return ""


def main(file: str, name: str, paths: list[str]) -> None:
    """Print the outcome of one parser."""
    sys.path[:0] = paths
    package, read = PARSERS[name]
    entries = [entry for entry in json.loads(Path(file).read_text(encoding="utf-8")) if entry["parser"] == name]
    refused = [why for entry in entries if (why := _said(read, entry))]
    try:
        release = version(package)
    except Exception:
        release = "source"
    outcome = {"parser": name, "version": release, "given": len(entries), "accepted": len(entries) - len(refused)}
    print(json.dumps(outcome | {"refused": sorted(set(refused))}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
