"""F9 to F22: states, activations, LoRA and layouts."""

from typing import Any

from vramcast.hardware.cards import find_accelerator
from vramcast.ledger import RankMemory
from vramcast.models.quantization import scheme_for, weight_bytes
from vramcast.models.reading import read_model
from vramcast.training.forecast import TrainingForecast, forecast_training
from vramcast.truth.folklore import Entry, Exact, Figure, Measured, rules
from vramcast.truth.folklore.rules import Numbers
from vramcast.units import GB, MB, GiB
from vramcast.workload import Adapter, Parallel, Training

_7B = "meta-llama/Llama-2-7b-hf"
_13B = "meta-llama/Llama-2-13b-hf"
_8B = "meta-llama/Meta-Llama-3-8B"
_FMS = "foundation-model-stack/fms-acceleration, scripts/benchmarks/refs/a100_80gb_liger.csv"


def training_entries() -> tuple[Entry, ...]:
    """The fourteen rules about training."""
    return (
        _sixteen_phi(), _sixteen_n(), _fourteen_bytes(), _thirteen_b(), _doubled_paper(), _two_widths(), _residual_stream(),
        _optimizer_bytes(), _int8_training(), _lora_gradients(), _int4_65b(), _v100s(), _rank_and_batch(), _divides(),
    )  # fmt: skip


def _ask(model: str, **fields: Any) -> TrainingForecast:
    return forecast_training(Training(model=model, **fields), model=read_model(model))


def _worst(answer: TrainingForecast) -> RankMemory:
    return max(answer.ranks, key=lambda r: r.needed_bytes)


def peak(label: str, model: str, **fields: Any) -> Exact:
    """What the worst rank allocates at its peak, and when that is."""
    rank = _worst(_ask(model, **fields))
    return Exact(label=f"{label}: peak allocated, at the {rank.peak.name}", value=rank.allocated_bytes / GiB)


def largest_term(label: str, name: str, model: str, **fields: Any) -> Exact:
    """The largest that a term gets over the instants of the step."""
    rank = _worst(_ask(model, **fields))
    size = max(sum(t.bytes for t in i.terms if t.name == name) for i in rank.instants)
    return Exact(label=label, value=size / GiB)


def _sixteen_phi() -> Entry:
    fp32 = {"framework": "pytorch", "param_dtype": "float32", "compute_dtype": "float32", "seq": 512}
    bf16 = {"framework": "pytorch", "param_dtype": "bfloat16", "compute_dtype": "bfloat16", "seq": 512}
    return Entry(
        id="F9",
        rule="fp32 everything is 16 bytes per parameter, fp16 everything 8",
        figures=(Figure(label="7B at 8 bytes", said=52, reproduced=rules.weights(Numbers(), 8).value / GiB, within=0.2),),
        exact=(
            peak("Llama-2-7B, AdamW in fp32, 512 tokens", _7B, **fp32),
            peak("the same in bf16", _7B, **bf16),
        ),
        measured=(
            Measured(
                label="Mistral-7B and Llama-3-8B, all in bf16, one A100",
                text="10.00 bytes per parameter at the peak",
                source=_FMS,
            ),
        ),
        why="right for the states at rest; PyTorch's default (foreach) AdamW adds a temporary as large as the weights at "
        "the optimizer step",
    )


def _sixteen_n() -> Entry:
    sharded = {
        "gpus": 8,
        "fsdp": 2,
        "parallel": Parallel(dp=8),
        "param_dtype": "float32",
        "checkpointing": "full",
        "gpu": "A100 SXM 80GB",
    }
    return Entry(
        id="F10",
        rule="mixed precision AdamW is 2 + 2 + 12 = 16 bytes per parameter: 16n G, and 20n G in practice",
        figures=(
            Figure(label="7B at 16 bytes", said=16 * 7, reproduced=rules.weights(Numbers(), 16).value / GB, unit="GB"),
            Figure(label="7B at 20 bytes", said=20 * 7, reproduced=rules.weights(Numbers(), 20).value / GB, unit="GB"),
        ),
        exact=(peak("Llama-2-7B, FSDP over 8 cards, fp32 weights, per card", _7B, **sharded),),
        measured=(
            Measured(
                label="7B with bf16=True under FSDP, 2 and 4 cards", text="20.01 bytes per parameter over all cards", source=_FMS
            ),
        ),
        why="16 and 20 are both real: 16 with a fused update, 20 when the foreach update's temporary is fp32; Megatron "
        "keeps 18, bf16 AdamW 8 to 10",
    )


def _fourteen_bytes() -> Entry:
    stream = 32 * rules.stream(Numbers(tokens=4096, bytes_each=4)).value
    return Entry(
        id="F11",
        rule="2 + 4 + 8 = 14 bytes per parameter: 98 G for a 7B, about 100 G with activations",
        figures=(
            Figure(label="states", said=98, reproduced=rules.weights(Numbers(), 14).value / GB, unit="GB"),
            Figure(
                label="with 2.1 G of activations (32 layers x 4,096 tokens in fp32)",
                said=100,
                reproduced=rules.weights(Numbers(), 14).value / GB + stream / GB,
                unit="GB",
                within=0.2,
            ),
        ),
        exact=(peak("Llama-2-7B, Megatron recipe, 1 x 2,048", _7B, framework="megatron"),),
        why="fp32 gradients but no fp32 master weights: a recipe nobody runs; Megatron's 18 adds the master copy; the 2.1 G are "
        "the residual stream alone",
    )


def _thirteen_b() -> Entry:
    asked = Numbers(parameters=13e9, hidden=5120, layers=40, heads=40, tokens=1024)
    published = rules.paper_activations(asked).value / GiB
    total = rules.weights(asked, 16).value / GB + published + rules.ends(asked).value / GB
    return Entry(
        id="F12",
        rule="13B in mixed precision: weights 26, optimizer 156, gradients 26, activations 14.5, in/out 0.02 = 222.5 GB",
        figures=(
            Figure(label="of it activations, by the published formula of F13", said=14.5, reproduced=published, within=0.1),
            Figure(label="total", said=222.5, reproduced=total, unit="GB", within=0.1),
        ),
        exact=(
            peak("Llama-2-13B, Megatron, 1 x 1,024", _13B, framework="megatron", seq=1024),
            peak("HF Trainer over fp32 weights", _13B, seq=1024, param_dtype="float32"),
            peak("HF Trainer over bf16 weights", _13B, seq=1024, param_dtype="bfloat16"),
        ),
        why="the words name four recipes between 8 and 20 bytes per parameter; states and activations do not peak at the same "
        "moment; and 14.5 are GiB among GB, from the published formula and not from the one that the article gives (32.8)",
    )


def _doubled_paper() -> Entry:
    shape = Numbers()
    return Entry(
        id="F13",
        rule="activations = 4 s b h L (34 + s a / h)",
        figures=(Figure(label="7B, 2,048 tokens", said=50, reproduced=rules.doubled_paper_activations(shape).value / GiB),),
        exact=(
            Exact(
                label="the published formula, s b h (34 + 5 a s / h) bytes per layer",
                value=rules.paper_activations(shape).value / GiB,
            ),
            largest_term(
                "Llama-2-7B in bf16, FlashAttention, saved by all layers", "activations", _7B, seq=2048, attention="flash"
            ),
            largest_term("the same with eager attention", "activations", _7B, seq=2048, attention="eager"),
        ),
        why="34 already counts bytes, and the score term has a 5; the paper's block is a GPT with dropout, not a Llama",
    )


def _two_widths() -> Entry:
    said = rules.two_widths(Numbers(bytes_each=1)).value / MB
    return Entry(
        id="F14",
        rule="activations = (hidden + ffn) x tokens x layers x bytes: 990 MB per sequence at int8, so a batch of 50 on 80 GB",
        figures=(Figure(label="one sequence of 2,048", said=990, reproduced=said, unit="MB", within=0.5),),
        exact=(
            largest_term("Llama-2-7B in bf16, 1 x 2,048, saved by all layers", "activations", _7B, seq=2048, attention="flash"),
        ),
        why="a block saves ten tensors of hidden width and four of the ffn width, in 16 bits: activations are not kept in int8",
    )


def _residual_stream() -> Entry:
    said = 32 * rules.stream(Numbers()).value / GiB
    return Entry(
        id="F15",
        rule="activations = batch x tokens x hidden x bytes (x layers)",
        figures=(Figure(label="7B, 2,048 tokens, 32 layers", said=0.5, reproduced=said),),
        exact=(
            largest_term("with full checkpointing", "activations", _7B, seq=2048, checkpointing="full", attention="flash"),
            largest_term("without", "activations", _7B, seq=2048, attention="flash"),
        ),
        why="that is the residual stream: what full checkpointing keeps, before the live layer's working set and the logits",
    )


def _optimizer_bytes() -> Entry:
    names = ("adamw", "adamw_8bit", "adafactor", "sgd_momentum")
    return Entry(
        id="F16",
        rule="optimizer states: AdamW 8, 8-bit AdamW 2, SGD with momentum 4 bytes per parameter",
        figures=(Figure(label="AdamW on 7B", said=52.15, reproduced=rules.weights(Numbers(), 8).value / GiB),),
        exact=tuple(
            largest_term(f"{n} on Llama-2-7B held in fp32", "optimizer", _7B, optimizer=n, param_dtype="float32") for n in names
        ),
        why="states follow the weights' type: 4 bytes per parameter for AdamW over bf16 weights; 8-bit AdamW keeps "
        "embeddings in fp32",
    )


def _int8_training() -> Entry:
    return Entry(
        id="F17",
        rule="int8 training of a 6B: weights 6 + gradients 6 + AdamW 12 + context 1.3 = 25.3 GB",
        figures=(Figure(label="total", said=25.3, reproduced=6 + 6 + 12 + 1.3, unit="GB"),),
        exact=(peak("Yi-6B in LLM.int8 with LoRA of rank 8, 1 x 512", "01-ai/Yi-6B", method="lora", quant="llm.int8", seq=512),),
        why="int8 weights take no gradient: what is trained is an adapter; full fine-tuning keeps 8 to 20 bytes per parameter",
    )


def _lora_gradients() -> Entry:
    adapter = Adapter(rank=8, targets=("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"))
    answer = _ask(_7B, method="lora", adapter=adapter, seq=2048)
    share = 100 * answer.trainable_parameters / read_model(_7B).parameters
    return Entry(
        id="F18",
        rule="LoRA keeps weights and gradients of the base model, only the optimizer is saved: 26 G for a 7B; 0.4785 % trained",
        figures=(Figure(label="4 bytes per parameter", said=26, reproduced=rules.weights(Numbers(), 4).value / GiB, within=0.1),),
        exact=(
            Exact(label="trained share, rank 8 on seven projections", value=share, unit="%"),
            Exact(label="Llama-2-7B LoRA, 1 x 2,048: peak allocated", value=_worst(answer).allocated_bytes / GiB),
            largest_term("of it activations", "activations", _7B, method="lora", adapter=adapter, seq=2048),
        ),
        measured=(
            Measured(
                label="7B fp16, rank 8, batch 1, one A100", text="24 G and more", source="the report that the rule comes from"
            ),
        ),
        why="frozen weights have no gradients; weights and activations fill the card, and the estimate is near by accident",
    )


def _int4_65b() -> Entry:
    llama = read_model("huggyllama/llama-65b")
    weights = weight_bytes(llama, scheme_for(llama, quant="nf4-dq")) / GiB
    recipe = {"method": "qlora", "adapter": Adapter(rank=64), "seq": 512, "checkpointing": "full"}
    return Entry(
        id="F19",
        rule='int4 65B with LoRA needs "about 50 G at least"',
        quoted=("about 50 G at least",),
        exact=(
            Exact(label="weights in NF4 with double quantisation", value=weights),
            peak("QLoRA, rank 64, 1 x 512, checkpointing", "huggyllama/llama-65b", **recipe),
        ),
        why="a fair floor: 4-bit weights are 0.52 bytes each with their scales, embeddings and head stay 16-bit, the rest "
        "is batch x length",
    )  # fmt: skip


def _v100s() -> Entry:
    llama = read_model("huggyllama/llama-65b")
    weights = weight_bytes(llama, scheme_for(llama, quant="fp16")) / GiB
    card = find_accelerator("V100 32GB")
    return Entry(
        id="F20",
        rule="four V100-32G cannot train a 65B: the weights alone need five cards; FlashAttention needs Turing or newer",
        figures=(Figure(label="cards for the weights", said=5, reproduced=-(-65.2e9 * 2 // (32 * GB)), unit="cards"),),
        exact=(
            Exact(label="fp16 weights", value=weights),
            Exact(label="visible on four V100-32G", value=4 * card.visible_bytes / GiB),
        ),
        why="weights fit four cards with 5 GiB to spare and nothing else does; FlashAttention 2 needs Ampere, bf16 "
        "Ampere, fp8 Ada or Hopper",
    )


def _rank_and_batch() -> Entry:
    def tried(rank: int, batch: int) -> Exact:
        fields = {"method": "lora", "adapter": Adapter(rank=rank), "seq": 1024, "checkpointing": "full", "micro_batch": batch}
        return peak(f"Llama-3-8B LoRA, rank {rank}, batch {batch} x 1,024, checkpointing", _8B, **fields)

    return Entry(
        id="F21",
        rule="how LoRA rank (2, 4, 8) and batch (2, 4, 8, 12) move the memory of Llama-3-8B",
        quoted=("twelve runs, each read off nvidia-smi",),
        exact=(tried(2, 2), tried(8, 2), tried(2, 12), tried(8, 12)),
        measured=(
            Measured(label="rank 16, batch 4, 8, 16 x 4,096, fused loss", text="23.2, 31.3, 47.4 GiB allocated", source=_FMS),
        ),
        why="rank hardly moves the total, batch does: vramcast train MODEL --method lora --sweep rank=2,4,8 micro_batch=2,4,8,12",
    )


def _divides() -> Entry:
    one = largest_term("activations of Llama-2-7B, 1 x 2,048: one card", "activations", _7B, framework="megatron", seq=2048)
    layouts = (("tensor parallel 4", Parallel(tp=4)), ("and sequence parallel", Parallel(tp=4, sp=True)))
    split = tuple(
        largest_term(f"Megatron, {words}", "activations", _7B, framework="megatron", seq=2048, gpus=4, parallel=layout)
        for words, layout in layouts
    )
    return Entry(
        id="F22",
        rule="data parallel copies everything; model parallelism divides memory by the number of workers",
        quoted=("memory falls in proportion",),
        exact=(one, *split),
        why="true of the cut matrices only: norms, dropouts and the residual stream stay whole without sequence "
        "parallelism, the first pipeline "
        "stage holds as many micro-batches as there are stages, gathered layers and buffers come on top",
    )
