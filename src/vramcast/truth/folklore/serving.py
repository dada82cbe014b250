"""F1 to F8: weights, caches and contexts."""

from vramcast.hardware.cards import find_accelerator
from vramcast.models.describe import cache_bytes
from vramcast.models.inventory import Model
from vramcast.models.quantization import scheme_for, weight_bytes
from vramcast.models.reading import read_model
from vramcast.serving.engines.base import answer_of
from vramcast.truth.folklore import Entry, Exact, Figure, Measured, rules
from vramcast.truth.folklore.rules import Numbers
from vramcast.units import GB, GiB, MiB
from vramcast.workload import Serving

_LLAMA_2_7B = "meta-llama/Llama-2-7b-hf"
_LLAMA_3_8B = "meta-llama/Meta-Llama-3-8B"
_BAICHUAN = Numbers(parameters=7_000_559_616)  # Baichuan-7B's count to the last parameter, quoted as LLaMA's
_ROTARY_TABLES = (
    2 * 4096 * 128 + 64
)  # cos and sin of 4,096 positions and the inverse frequencies, held by each layer of old transformers


def serving_entries() -> tuple[Entry, ...]:
    """The eight rules about weights and inference."""
    return (_parameters_times_bytes(), _two_tensors(), _twenty_percent(), _calculator(), _cache(), _two_n(), _context(), _cards())


def _weights_gib(model: Model, quant: str) -> float:
    return weight_bytes(model, scheme_for(model, quant=quant)) / GiB


def _parameters_times_bytes() -> Entry:
    llama = read_model(_LLAMA_2_7B)
    return Entry(
        id="F1",
        rule="weights = parameters x bytes: 4, 2, 1, 0.5 G per billion",
        figures=(
            Figure(label="7.0e9 in fp16", said=13.04, reproduced=rules.weights(Numbers(), 2).value / GiB),
            Figure(label="7.0e9 in fp32", said=26.08, reproduced=rules.weights(Numbers(), 4).value / GiB),
            Figure(label="7,000,559,616 in int8", said=6.5, reproduced=rules.weights(_BAICHUAN, 1).value / GiB, within=0.03),
            Figure(label="7,000,559,616 in int4", said=3.26, reproduced=rules.weights(_BAICHUAN, 0.5).value / GiB),
        ),
        exact=(
            Exact(label="Llama-2-7B, 6,738,415,616 parameters, bf16", value=_weights_gib(llama, "bf16")),
            Exact(label="the same in LLM.int8", value=_weights_gib(llama, "llm.int8")),
            Exact(label="the same in 4-bit AWQ, groups of 128", value=_weights_gib(llama, "awq")),
            Exact(label="the same in NF4", value=_weights_gib(llama, "nf4")),
        ),
        measured=(
            Measured(
                label="Qwen2.5-7B bf16 loaded by vLLM 0.19",
                text="14.25 GiB for 14.19 GiB of parameters",
                source="llm-d-incubation/llm-d-planner pull 205",
            ),
        ),
        why="a 7B model has 6.74e9 parameters, or 7.6e9; at 4 bits embeddings, head and group scales stay wider: a "
        "quarter more than 0.5 B each",
    )


def _two_tensors() -> Entry:
    said = rules.inputs_and_activations(Numbers(bytes_each=4, tokens=8192)).value / GiB
    question = Serving(model=_LLAMA_3_8B, engine="transformers", dtype="float32", context=8192)
    answer = answer_of(question)
    worst = max(answer.ranks, key=lambda r: r.needed_bytes)
    return Entry(
        id="F2",
        rule="inference = weights + two tensors of batch x tokens x hidden",
        figures=(Figure(label="7.0e9 fp32, 8,192 tokens", said=26.33, reproduced=said),),
        exact=(
            Exact(
                label="Llama-3-8B fp32 in transformers, 8,192 tokens: weights",
                value=_weights_gib(read_model(_LLAMA_3_8B), "fp32"),
            ),
            Exact(label="the same, peak allocated", value=worst.allocated_bytes / GiB),
        ),
        why="no KV cache, no logits, no attention temporaries; the two tensors it does count are alive for a moment only",
    )


def _twenty_percent() -> Entry:
    exact = []
    for model, context, at_once in ((_LLAMA_3_8B, 2048, 1), (_LLAMA_3_8B, 8192, 16), ("Qwen/Qwen2.5-0.5B-Instruct", 8192, 16)):
        answer = answer_of(Serving(model=model, gpu="H100 SXM", context=context, concurrency=at_once))
        worst = max(answer.ranks, key=lambda r: r.needed_bytes)
        weights = next(t.bytes for t in worst.peak.terms if t.name == "weights")
        label = f"{model.split('/')[1]} in vLLM, {at_once} x {context:,} tokens: on top of the weights"
        exact.append(Exact(label=label, value=100 * (worst.needed_bytes / weights - 1), unit="%"))
    return Entry(
        id="F3",
        rule="add 20 % to the weights for inference",
        quoted=("20 %",),
        exact=tuple(exact),
        why="what is added does not follow the weights: cache grows with tokens, logits with sequences x vocabulary, the "
        "context is fixed",
    )


def _calculator() -> Entry:
    llama, bert = read_model(_LLAMA_2_7B), read_model("google-bert/bert-base-cased")
    head, layer = llama.vocab * llama.hidden, llama.blocks[0].elements
    total = rules.calculator(llama.parameters, head=head, layers=llama.layers, buffers=_ROTARY_TABLES, bytes_each=2).value / GiB
    return Entry(
        id="F4",
        rule="the model-memory calculator on Llama-2-7B: largest layer 388.02 MB, total 12.37 GB, training with Adam 49.48 GB",
        figures=(
            Figure(
                label="largest layer",
                said=388.02,
                reproduced=rules.layer(layer, buffers=_ROTARY_TABLES, bytes_each=2).value / MiB,
                unit="MiB",
            ),
            Figure(label="total, fp16", said=12.37, reproduced=total),
            Figure(
                label="model step, 2 x: 16-bit weights counted as float32 where training is mixed",
                said=24.74,
                reproduced=2 * total,
            ),
            Figure(label="gradients step, 3 x", said=37.11, reproduced=3 * total),
            Figure(label="Adam, 4 x", said=49.48, reproduced=4 * total),
        ),
        exact=(
            Exact(label="largest layer, bf16", value=layer * 2 / MiB, unit="MiB"),
            Exact(label="total with its output head, bf16", value=_weights_gib(llama, "bf16")),
            Exact(label="bert-base-cased with its masked-LM head, fp32", value=bert.parameters * 4 / MiB, unit="MiB"),
        ),
        measured=(Measured(label="bert-base-cased", text="413.68 MB loaded, 413.18 MB said", source="accelerate documentation"),),
        why="it builds the model without its head, counts rotary tables of every layer as weights, prints GiB as GB, and "
        "takes Adam as four copies in one type with no activations; its four figures by step are moments, so their sum "
        "means nothing",
    )


def _cache() -> Entry:
    said = rules.cache(Numbers(tokens=1024)).value / MiB
    models = (_LLAMA_2_7B, _LLAMA_3_8B, "deepseek-ai/DeepSeek-V3")
    return Entry(
        id="F5",
        rule="KV cache = 2 x hidden x layers x batch x tokens x bytes",
        figures=(Figure(label="7B, 1,024 tokens, fp16", said=512, reproduced=said, unit="MiB"),),
        exact=(
            *(
                Exact(label=f"{m.split('/')[1]}, 1,024 tokens", value=cache_bytes(read_model(m), 1024) / MiB, unit="MiB")
                for m in models
            ),
            Exact(
                label="the rule on DeepSeek-V3",
                value=rules.cache(Numbers(hidden=7168, layers=61, tokens=1024)).value / MiB,
                unit="MiB",
            ),
        ),
        measured=(
            Measured(
                label="a 7B with 32 full KV heads",
                text="69,524,783,104 bytes for 132,608 tokens = 512 KiB per token",
                source="NVIDIA/TensorRT-LLM issue 1400",
            ),
        ),
        why="right for multi-head attention only: grouped heads cache 4 to 8 times less, latent attention 25 times less, "
        "windows stop growing",
    )


def _two_n() -> Entry:
    exact = tuple(
        Exact(label=f"{m.split('/')[1]}, bf16", value=weight_bytes(found, scheme_for(found, quant="bf16")) / GB, unit="GB")
        for m in (_LLAMA_2_7B, _LLAMA_3_8B, "Qwen/Qwen2.5-7B-Instruct")
        for found in (read_model(m),)
    )
    return Entry(
        id="F6",
        rule="an nB model's file is 2n GB at fp16, and loads in 2n GB",
        figures=(
            Figure(label="7B", said=14, reproduced=2 * 7, unit="GB"),
            Figure(label="8B", said=16, reproduced=2 * 8, unit="GB"),
        ),
        exact=exact,
        why="names round: a 7B holds 6.7e9 to 7.6e9 parameters; the file is GB (10^9) while cards and tools count GiB, 7 % apart",
    )


def _context() -> Entry:
    from vramcast.hardware.runtime import context_bytes

    exact = tuple(
        Exact(label=f"CUDA context on {card.name}", value=context_bytes(card) / MiB, unit="MiB")
        for card in (find_accelerator("H100 SXM"), find_accelerator("RTX 4090"), find_accelerator("RTX 3090"))
    )
    return Entry(
        id="F7",
        rule='CUDA context and kernels take "about 1 GB", "1.3 GB", 1343 MB after a 1x1 tensor',
        quoted=("about 1 GB", "1.3 GB", "1343 MB after a 1x1 tensor"),
        exact=exact,
        measured=(
            Measured(label="H100, driver 590, CUDA 13.1", text="518 MiB", source="nvidia-smi captures, two processes"),
            Measured(
                label="RTX 3090, torch 2.7 against torch 1.8 eager loading",
                text="256 against 1001 to 1687 MiB",
                source="public logs",
            ),
        ),
        why="true of CUDA before 11.7, which loaded every kernel at once, and of WSL; since lazy loading a process costs "
        "250 to 550 MiB",
    )


def _cards() -> Entry:
    llama = read_model(_LLAMA_2_7B)
    exact = []
    for name, card in (("fp32", "RTX 4090"), ("llm.int8", "RTX 4060 8GB"), ("nf4", "RTX 4060 8GB")):
        memory = find_accelerator(card).visible_bytes / GiB
        exact.append(
            Exact(label=f"Llama-2-7B weights in {name} beside {memory:.1f} GiB of a {card}", value=_weights_gib(llama, name))
        )
    return Entry(
        id="F8",
        rule="a 24 GB card cannot hold a 7B in fp32, an 8 GB card runs int8, a 4 GB card int4 (3.26 GiB)",
        figures=(Figure(label="int4", said=3.26, reproduced=rules.weights(_BAICHUAN, 0.5).value / GiB),),
        exact=tuple(exact),
        why="the first holds; int8 leaves 0.9 GiB of an 8 GiB card for context, cache and logits; 4-bit files are 3.6 to "
        "3.9 GiB, more than a "
        "4 GiB card shows",
    )
