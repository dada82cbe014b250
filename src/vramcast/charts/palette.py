"""One colour per meaning, the same in every picture: weights are always blue. Chosen to be told apart by colour-blind readers.

The hues are those of Okabe and Ito (https://jfly.uni-koeln.de/color/) with two of IBM's palette for training's states.
"""

COLOURS = {
    "weights": "#0072b2", "kv_cache": "#009e73", "state": "#44aa99", "activations": "#e69f00", "logits": "#f0e442",
    "graphs": "#cc79a7", "workspace": "#d55e00", "communication": "#aa4499", "context": "#8c8c8c", "gradients": "#56b4e9",
    "optimizer": "#785ef0", "master_weights": "#332288", "loss": "#f0e442", "gathered": "#aa4499", "temporaries": "#d55e00",
    "gradient_copy": "#88ccee", "fragmentation": "#b0b0b0", "missing": "#cf222e",
}  # fmt: skip
PHASES = {"prefill": "#e69f00", "decode": "#0072b2"}  # the two moments of a server, and what it does most in each
ENGINES = {"vllm": "#0072b2", "sglang": "#e69f00", "tensorrt_llm": "#009e73", "llama_cpp": "#aa4499"}
# Where a GPU's time goes, and the classes of kernels on its streams.
TIMES = {"compute": "#0072b2", "exposed_communication": "#aa4499", "exposed_copies": "#e69f00", "idle": "#c9ced6"}
KERNELS = {
    "GEMM": "#0072b2", "attention": "#009e73", "MoE": "#44aa99", "other compute": "#88ccee", "communication": "#aa4499",
    "copies": "#e69f00",
}  # fmt: skip
OTHER = "#999999"
# Lines that stand for no part of the ledger: the colour-blind safe eight of Okabe and Ito, the darkest first.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")
VERDICTS = {"fits": "#1a7f37", "tight": "#9a6700", "partly": "#bc4c00", "no": "#cf222e", "unknown": "#57606a"}


def colour_of(term: str) -> str:
    """The colour of a top-level term of the ledger, or of a part of a GPU's time."""
    return COLOURS.get(term) or TIMES.get(term, OTHER)
