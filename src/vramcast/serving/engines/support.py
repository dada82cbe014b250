"""Which cards an engine starts on: from which compute capability of NVIDIA's parts, and on which chips of other makers.

A card of unknown architecture is taken to run: the answer is about memory, and a refusal must have a source.
"""

import msgspec

from vramcast.hardware.accelerator import Accelerator


class Support(msgspec.Struct, frozen=True, kw_only=True):
    """``nvidia``: the least compute capability. ``chips``: architectures of other makers that it is built for."""

    nvidia: tuple[int, int]
    chips: frozenset[str] = frozenset()
    source: str


_ROCM = frozenset({"CDNA1", "CDNA2", "CDNA3", "CDNA4", "RDNA2", "RDNA3", "RDNA3.5", "RDNA4"})
_GGML = Support(
    nvidia=(5, 0),
    chips=_ROCM | {"GCN5", "Apple GPU", "Xe2", "Xe HPC", "Xe HPG"},
    source="llama.cpp docs/build.md: CUDA, HIP, Vulkan, Metal and SYCL",
)
SUPPORT = {
    "vllm": Support(nvidia=(7, 0), chips=_ROCM - {"CDNA1", "RDNA2"}, source="vLLM docs, installation on GPUs"),
    "sglang": Support(nvidia=(7, 5), chips=frozenset({"CDNA3", "CDNA4"}), source="SGLang docs, installation and AMD GPUs"),
    "tensorrt_llm": Support(nvidia=(8, 0), source="TensorRT-LLM docs, support matrix"),
    "transformers": Support(
        nvidia=(5, 0),
        chips=_ROCM | {"Apple GPU", "Xe2", "Xe HPC", "Xe HPG", "Gaudi"},
        source="PyTorch builds for CUDA, ROCm, MPS, XPU and HPU",
    ),
    **dict.fromkeys(("llama_cpp", "ik_llama_cpp", "ollama"), _GGML),
}


def why_not(engine: str, card: Accelerator) -> str:
    """Why the engine does not start on that card, with the source; empty when it does or when the card is of no known kind."""
    rule = SUPPORT.get(engine)
    if rule is None:
        return ""
    if card.capability is not None and card.capability < rule.nvidia:
        least, own = (f"{a}.{b}" for a, b in (rule.nvidia, card.capability))
        return f"{engine} needs compute capability {least}, {card.name} has {own} ({rule.source})"
    if card.capability is None and card.vendor != "NVIDIA" and card.architecture and card.architecture not in rule.chips:
        return f"{engine} has no build for {card.architecture} ({rule.source})"
    return ""
