"""F23 to F29: operations, times and utilisation."""

from collections.abc import Callable
from typing import Any

from vramcast.hardware.accelerator import FORMATS
from vramcast.hardware.cards import find_accelerator
from vramcast.models.operations.counts import conventions, forward_flops
from vramcast.models.reading import read_model
from vramcast.quantity import Quantity
from vramcast.serving.engines.base import answer_of
from vramcast.speed.answer import Speed, serving_speed
from vramcast.speed.training.step import StepTime, training_speed
from vramcast.speed.utilization import from_tokens, peak_of, training_work
from vramcast.training.forecast import forecast_training
from vramcast.truth.folklore import Entry, Exact, Figure, Measured, rules
from vramcast.truth.folklore.rules import Numbers
from vramcast.workload import Parallel, Serving, Training

_7B = "meta-llama/Llama-2-7b-hf"
_ARTICLE = Numbers(tokens=1024)  # 7e9 parameters on 312 TFLOP/s and 1.515 TB/s
_RUN = Numbers(gpus=4)  # three sequences of 2,048 tokens a second on four cards
_TRTLLM = "NVIDIA/TensorRT-LLM docs/source/performance.md"


def speed_entries() -> tuple[Entry, ...]:
    """The seven rules about speed and utilisation."""
    return (
        _operations(), _first_token(), _flops_ratio(), _throughput(), _communication(), _profilers(), _formats(),
    )  # fmt: skip


def _operations() -> Entry:
    llama = read_model(_7B)
    return Entry(
        id="F23",
        rule="prefill is 2 N b s operations, a decoded token 2 N b",
        figures=(
            Figure(label="7B, 1,024 tokens", said=14_336, reproduced=rules.prefill_flops(_ARTICLE).value / 1e9, unit="GFLOP"),
            Figure(label="one token", said=14, reproduced=rules.decode_flops(_ARTICLE).value / 1e9, unit="GFLOP"),
        ),
        exact=(
            Exact(
                label="Llama-2-7B, 1,024 tokens with logits for each", value=forward_flops(llama, seq=1024) / 1e9, unit="GFLOP"
            ),
            Exact(label="Llama-2-7B, one token", value=forward_flops(llama, seq=1) / 1e9, unit="GFLOP"),
            Exact(
                label="Llama-2-7B, 32,768 tokens, per token", value=forward_flops(llama, seq=32768) / 32768 / 1e9, unit="GFLOP"
            ),
        ),
        why="the input embedding is looked up, not multiplied (4 % of a 7B), and attention over the past is left out: nothing at "
        "1,024 tokens, two thirds on top at 32,768; experts that a token does not meet do not count",
    )


def _served(engine: str, **fields: Any) -> Speed:
    question = Serving(model=_7B, engine=engine, dtype="float16", gpu="A100 SXM 80GB", context=4096, **fields)
    return serving_speed(answer_of(question))


def _milli(rule: Callable[[Numbers], Quantity]) -> float:
    return 1e3 * float(rule(_ARTICLE).value)


def _first_token() -> Entry:
    own, batched = _served("vllm", prompt=1024, output=128), _served("transformers", prompt=1024, output=128)
    return Entry(
        id="F24",
        rule="TTFT = FLOPs / peak + weights / bandwidth; TPOT the same for one token",
        figures=(
            Figure(label="TTFT, 7B fp16, 1,024 tokens", said=55.3, reproduced=_milli(rules.first_token_s), unit="ms", within=0.2),
            Figure(label="TPOT", said=9.3, reproduced=_milli(rules.next_token_s), unit="ms", within=0.02),
        ),
        exact=(
            Exact(label="Llama-2-7B, vLLM, one user, A100 80 GB: TTFT", value=own.ttft.seconds * 1e3, unit="ms"),
            Exact(label="the same: TPOT", value=own.tpot.seconds * 1e3, unit="ms"),
            Exact(label="the same in transformers: TTFT", value=batched.ttft.seconds * 1e3, unit="ms"),
            Exact(label="the same: TPOT", value=batched.tpot.seconds * 1e3, unit="ms"),
        ),
        measured=(
            Measured(label="TTFT, TensorRT-LLM 0.5, 128 and 2,048 tokens", text="16 and 133 ms", source=_TRTLLM),
            Measured(label="TPOT, gpt-fast, A100 80 GB at 330 W", text="9.53 ms", source="pytorch-labs/gpt-fast README.md"),
        ),
        why="weights are read while products run, so the larger of the two counts and not their sum; no kernel reaches the peak "
        "(some 70 to 85 % of both rates), and host, sampling and launches come on top",
    )  # fmt: skip


def _flops_ratio() -> Entry:
    peak = peak_of(find_accelerator("A100 SXM"), "bf16").flops_per_s / 1e12
    return Entry(
        id="F25",
        rule="utilisation = TFLOP/s that a program prints / the card's peak",
        figures=(
            Figure(label="100 of 312", said=32.05, reproduced=100 * rules.share_of_peak(Numbers()).value, unit="%"),
        ),
        exact=(
            Exact(label="the A100's dense bf16 rate", value=peak, unit="TFLOP/s"),
            Exact(label="the same 100 of the sparse rate that data sheets print large", value=100 * 100 / (2 * peak), unit="%"),
        ),
        why="right where the program counts model FLOPs; printed figures differ by attention (half or full) and by "
        "recomputation, and the sparse rate halves the share: vramcast utilization names the convention",
    )  # fmt: skip


def _throughput() -> Entry:
    llama, card = read_model(_7B), find_accelerator("A100 SXM")
    work, peak = training_work(llama, seq=2048), peak_of(card, "bf16")
    tokens = float(rules.tokens_per_card(_RUN).value)
    own, theirs = (from_tokens(work, t, peak).mfu["causal"] for t in (tokens, _RUN.paper_tokens_per_s))
    return Entry(
        id="F26",
        rule="utilisation = sequences/s x length / cards, over a paper's tokens/s per card",
        figures=(
            Figure(label="3 sequences/s of 2,048 on 4 cards", said=1536, reproduced=tokens, unit="tokens/s"),
            Figure(
                label="of a paper's 3,300", said=46.54, reproduced=100 * rules.share_of_paper(_RUN).value, unit="%", within=0.02
            ),
        ),
        exact=(
            Exact(label="Llama-2-7B: MFU of that run", value=100 * own, unit="%"),
            Exact(label="MFU of the paper's 3,300 itself", value=100 * theirs, unit="%"),
        ),
        why="the paper's run is not 100 %: 46.5 % of its MFU is the run's MFU, and then this way agrees with the others",
    )


def _step(gpu: str) -> StepTime:
    question = Training(model=_7B, gpu=gpu, gpus=8, zero=3, framework="deepspeed", parallel=Parallel(dp=8), seq=2048)
    model = read_model(_7B)
    return training_speed(forecast_training(question, model=model), model, find_accelerator(gpu))


def _communication() -> Entry:
    exact = []
    for gpu, link in (("A100 SXM 80GB", "NVLink"), ("A100 PCIe 80GB", "PCIe")):
        found = _step(gpu)
        exposed = sum(t.seconds for t in found.term.terms if t.name == "data_parallel")
        label = f"Llama-2-7B, ZeRO-3 on 8 A100 over {link}, 1 x 2,048: exposed communication"
        exact.append(Exact(label=label, value=100 * exposed / found.step_s, unit="%"))
    return Entry(
        id="F27",
        rule="utilisation = the tensor cores' share of kernel time in a profiler trace; over PCIe, ZeRO-3's communication may "
        "exceed compute",
        quoted=("30 %",),
        exact=tuple(exact),
        why="a busy tensor core is not a full one: the share says where the time goes, MFU what it was worth; vramcast profile "
        "reads the trace and gives both",
    )  # fmt: skip


def _profilers() -> Entry:
    llama = read_model(_7B)
    rows = tuple(
        Exact(label=f"2,048 tokens as {c.name} counts", value=c.flops / 1e12, unit="TFLOP") for c in conventions(llama, seq=2048)
    )
    return Entry(
        id="F28",
        rule="DeepSpeed's flops profiler, ds_report, nvidia-smi topo -m, deviceQuery: run by hand, one after the other",
        quoted=("one FLOP count for all",),
        exact=rows,
        why="profilers count different things under one name; vramcast doctor, topology and profile gather and read what the "
        "others print",
    )  # fmt: skip


def _formats() -> Entry:
    names = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4")
    parts = {name: FORMATS[name].replace(",", " ").split()[0] for name in names}
    bits = {name: sum(int(part) for part in text.split("+")) for name, text in parts.items()}
    return Entry(
        id="F29",
        rule="TF32 has 19 bits",
        figures=(Figure(label="sign, exponent, fraction", said=19, reproduced=bits["tf32"], unit="bits"),),
        exact=tuple(
            Exact(label=f"{name}: {parts[name].replace('+', ' + ')}", value=size, unit="bits") for name, size in bits.items()
        ),
        why="it computes with 19 and is stored in 32: TF32 makes matrix products faster and no tensor smaller",
    )
