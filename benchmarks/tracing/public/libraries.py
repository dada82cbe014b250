"""The library versions behind published figures: they are part of the workload, so each set is installed beside the others."""

import subprocess
import sys
from pathlib import Path

import platformdirs

# torch stays the installed one: only it can be traced. "present": what is installed. Each set names what its source pins.
_FMS = ("accelerate==1.0.1", "peft==0.13.2", "trl==0.11.4", "datasets==2.21.0", "bitsandbytes==0.43.3")
SETS: dict[str, tuple[str, ...]] = {
    "present": (),
    # scripts/benchmarks/refs/requirements*.txt of fms-acceleration, and its plugins as published then
    "fms-2024": (
        "transformers==4.45.2", "huggingface_hub==0.26.2", "tokenizers==0.20.3", *_FMS,
        "fms-acceleration==0.5.0", "fms-acceleration-peft==0.3.2", "fms-acceleration-foak==0.4.0",
    ),
    "fms-2025": (
        "transformers==4.48.1", "huggingface_hub==0.27.1", "tokenizers==0.21.0", *_FMS,
        "fms-acceleration==0.6.1", "fms-acceleration-peft==0.4.0", "fms-acceleration-foak==0.6.0",
    ),
    # the last litgpt that fine-tunes a quantised model with its embedding as it was, and the one bitsandbytes that it supports
    "litgpt-2024": (
        "litgpt==0.4.13", "lightning==2.4.0", "lightning-utilities==0.11.9", "torchmetrics==1.6.0", "jsonargparse==4.32.1",
        "bitsandbytes==0.42.0",
    ),
    "liger": ("liger-kernel==0.8.5",),
    "torchtune": ("torchtune==0.6.1", "torchao==0.10.0", "torchdata==0.11.0", "omegaconf==2.3.0", "antlr4-python3-runtime==4.9.3",
        "tiktoken==0.9.0", "sentencepiece==0.2.0", "blobfile==3.0.0"),
    "torchtitan-0.1": ("torchtitan==0.1.0", "torchdata==0.11.0", "datasets==4.0.0", "tyro==1.0.17", "typeguard==4.6.0",
        "shtab==1.13.0", "docstring_parser==0.18.0", "tensorboard==2.21.0", "tiktoken==0.9.0", "blobfile==3.0.0",
        "pandas==3.1.1", "pytz==2026.6", "dill==0.4.1", "multiprocess==0.70.19", "xxhash==4.1.0", "protobuf==7.36.2",
        "absl_py==2.5.1", "six==1.17.0"),
    # the page names a development version of PEFT; nearest is the release after it
    "peft-2026": ("transformers==5.13.1", "peft==0.20.0", "huggingface_hub==1.9.0", "httpx==0.28.1", "httpcore==1.0.9",
        "tokenizers==0.22.2"),
    # torch 2.2 and what was new in March 2024; the first bitsandbytes that stores 4 bits in other types and runs on fake tensors
    "fsdp-qlora": ("transformers==4.37.2", "peft==0.9.0", "bitsandbytes==0.43.3", "accelerate==0.27.2", "tokenizers==0.15.2",
        "huggingface_hub==0.23.5"),
    "transformers-4.35": ("transformers==4.35.2", "tokenizers==0.15.2", "huggingface_hub==0.23.5", "accelerate==0.25.0"),
    "transformers-4.38": ("transformers==4.38.2", "huggingface_hub==0.23.5", "tokenizers==0.15.2", "accelerate==0.30.1"),
    "transformers-4.46": ("transformers==4.46.0", "huggingface_hub==0.26.5", "tokenizers==0.20.3", "accelerate==1.1.1"),
    "transformers-4.51": ("transformers==4.51.3", "huggingface_hub==0.30.2", "tokenizers==0.21.1", "accelerate==1.6.0"),
}  # fmt: skip


def folder(name: str) -> Path | None:
    """The folder that holds a set, installed on first use; None for what is installed anyway."""
    wanted = SETS[name]
    if not wanted:
        return None
    place = Path(platformdirs.user_cache_dir("vramcast")) / "tracing" / name
    done = place / "installed.txt"
    if not done.exists() or done.read_text() != "\n".join(wanted):
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(place)]
        subprocess.run([*install, *wanted], check=True)
        done.write_text("\n".join(wanted))
    return place
