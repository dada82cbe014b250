"""The words of the answers, each in one or two short sentences: ``--explain WORD`` prints one, docs/glossary.md has all."""

GLOSSARY = {
    "activations": "Tensors that layers compute. Training keeps some for the backward pass; serving holds those of one step.",
    "allocated": "Bytes that live tensors hold (torch.cuda.memory_allocated). Never more than reserved.",
    "binding": "The largest term of the moment that decides: what to make smaller first. The page prints it as 'largest'.",
    "claimed": "What an engine takes of the card, needed or not. vLLM claims --gpu-memory-utilization of the whole card.",
    "concurrency": "Sequences that are alive at the same time, each with its own KV cache.",
    "context": "As a setting: the longest sequence, prompt and answer together, in tokens. In the ledger: the CUDA context, "
    "which the driver keeps for a process before the first tensor.",
    "device": "What nvidia-smi shows for the process: reserved bytes, the CUDA context and buffers of libraries.",
    "fits": "At least 95% likely to fit, and the forecast leaves room. Exit code 0.",
    "fragmentation": "Bytes that PyTorch's allocator reserved and no tensor fills.",
    "gathered": "Shards of weights collected from other cards for the layer that runs now (ZeRO-3, FSDP).",
    "instant": "A moment of a run (end of forward, loss, optimizer step ...). The peak is the largest, not the sum of maxima.",
    "kv cache": "Keys and values of every past token, kept so that the next token need not compute them again.",
    "kv_cache": "Keys and values of every past token, kept so that the next token need not compute them again.",
    "master_weights": "A float32 copy of 16-bit weights, which the optimizer updates.",
    "micro-batch": "Sequences that one card takes through one forward and backward pass.",
    "moment": "Another word for instant.",
    "needed": "What the question takes, whatever the engine sets aside. Its range comes from measured runs of its kind.",
    "no": "Less than 50% likely to fit, or refused by the engine. Exit code 1.",
    "partly": "The engine starts, but serves fewer or shorter requests than asked, or leaves layers to the CPU. Exit code 1.",
    "peak": "The instant with most bytes. It decides whether the run fits.",
    "rank": "One process of a run, with one card of its own. (The rank of an adapter is the width of its small matrices.)",
    "reserved": "Bytes that PyTorch's allocator holds from the driver (torch.cuda.memory_reserved): allocated and fragmentation.",
    "state": "Memory of fixed size per sequence: the recurrent state of Mamba and linear attention.",
    "tight": "50 to 95% likely to fit. Exit code 0.",
    "tpot": "Time per output token, after the first.",
    "ttft": "Time to the first token: waiting, and the prefill of the prompt.",
    "workspace": "Scratch memory that libraries keep for their kernels (cuBLAS and the like).",
}


def glossary_page() -> str:
    """docs/glossary.md."""
    lines = ["# Glossary", "", "The words of the answers. `--explain WORD` prints one.", ""]
    return "\n".join([*lines, *(f"* **{word}**: {text}" for word, text in GLOSSARY.items())]) + "\n"
