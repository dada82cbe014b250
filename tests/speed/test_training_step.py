"""The time of a training step: a ledger that sums, laws that hold, and figures near published runs."""

import math

import pytest

from vramcast.asking import training_question
from vramcast.asking.asked import answer_training
from vramcast.errors import QuestionError
from vramcast.hardware.cards import find_accelerator
from vramcast.models.reading import read_model
from vramcast.quantity import SECONDS, evaluated
from vramcast.speed.kernels.collectives import all_gather
from vramcast.speed.kernels.gemm import elementwise
from vramcast.speed.training.job import Job, gathered_bytes, network_of, runs_every_expert
from vramcast.speed.training.step import ledger, step_time, training_speed
from vramcast.speed.training.sustained import Sustained, prior
from vramcast.speed.training.work import parts_of
from vramcast.training.forecast import forecast_training

LLAMA = "meta-llama/Llama-3.1-8B"
H100 = find_accelerator("H100 SXM")
FREE = Sustained(products=1, experts=1, scores=1, streams=1, exposed=0, host_s=0)


def job(**changed) -> Job:
    return Job(**{"seq": 4096, "rows": 1, "micro_batches": 4, "gpus": 8, "dp": 8, "sharding": "fsdp2", "shards": 8, **changed})


def step(model: str = LLAMA, card=H100, **changed):
    return step_time(job(**changed), read_model(model), card)


def test_the_ledger_sums_and_every_formula_evaluates_to_its_time() -> None:
    term = step(recomputed="full").term
    assert term.unit == SECONDS
    assert term.seconds == pytest.approx(sum(t.seconds for t in term.terms))
    leaves = [t for _, t in term.walk() if not t.terms and " x " in t.why]
    assert len(leaves) > 5
    for leaf in leaves:
        assert evaluated(leaf.why) == pytest.approx(leaf.seconds, rel=1e-6), leaf.name


@pytest.mark.parametrize("changed", [{}, {"tp": 4, "dp": 2, "sharding": "distributed_optimizer"}, {"frozen": True}])
def test_no_step_is_faster_than_its_flops_at_the_peak(changed) -> None:
    found = step(**changed)
    assert 0 < found.mfu < 1
    assert found.hfu >= found.mfu


def test_a_kernel_that_does_not_run_takes_no_time() -> None:
    """Experts without a bias once paid the least time of the kernel that adds it, in every layer."""
    experts = step("Qwen/Qwen3-30B-A3B", framework="megatron", sharding="distributed_optimizer", ep=8)
    assert not [t for _, t in experts.term.walk() if t.name == "expert bias" and t.seconds]


def test_llama_4_in_transformers_runs_every_expert_on_every_token() -> None:
    """Sixteen experts for one chosen; a framework's own layers and other classes run those that are chosen."""
    assert runs_every_expert("llama4_text")
    assert not runs_every_expert("") and not runs_every_expert("mixtral")
    scout = "meta-llama/Llama-4-Scout-17B-16E-Instruct"
    chosen, every = (_seconds(step(scout, frozen=True, every_expert=flag), "experts") for flag in (False, True))
    assert 8 < every / chosen <= 17
    asked = {name: _asked(scout, name).every_expert for name in ("hf_trainer", "axolotl", "megatron")}
    assert asked == {"hf_trainer": True, "axolotl": True, "megatron": False}


def test_packed_experts_are_unpacked_before_each_product() -> None:
    """bitsandbytes packs experts that are layers, as transformers 4 has them, and leaves those that are one tensor."""
    mixtral = "mistralai/Mixtral-8x7B-v0.1"
    plain, packed = (step(mixtral, frozen=True, unpacks="kernel", unpacks_experts=how).step_s for how in ("", "kernel"))
    assert packed > plain
    old, new = (_asked(mixtral, f"hf_trainer=={version}", method="qlora") for version in ("4.51", "5.2"))
    assert (old.unpacks_experts, new.unpacks_experts) == ("kernel", "")


def _asked(model: str, framework: str, **changed) -> Job:
    """The job of a question to this framework."""
    asked = training_question(model, framework=framework, gpu="8xH100", **changed).question
    read = read_model(model)
    return training_speed(forecast_training(asked, model=read), read, H100).job


def _seconds(found, name: str) -> float:
    return sum(t.seconds for _, t in found.term.walk() if t.name == name)


def test_an_adapter_s_dropout_costs_bytes_and_unsloth_adds_in_place() -> None:
    dropped, plain, added = (
        step(frozen=True, dp=1, gpus=1, sharding="none", shards=1, **changed).step_s
        for changed in (
            {"framework": "hf_trainer"},
            {"drops": False, "framework": "hf_trainer"},
            {"drops": False, "framework": "unsloth"},
        )
    )
    assert 1.03 < dropped / plain < 1.10
    assert 1.08 < plain / added < 1.30
    with_dropout = step(frozen=True, dp=1, gpus=1, sharding="none", shards=1, framework="unsloth").step_s
    assert with_dropout == pytest.approx(dropped, rel=1e-9), "Unsloth's fast path wants no dropout"


def test_adapters_on_attention_alone_cost_less_than_on_every_product() -> None:
    assert step(frozen=True, adapted=("qkv",)).step_s < 0.95 * step(frozen=True).step_s


def test_recomputation_costs_time_and_no_model_flops() -> None:
    none, full = step(), step(recomputed="full")
    assert full.step_s > 1.15 * none.step_s
    assert full.model_flops == none.model_flops
    assert full.hardware_flops == pytest.approx(4 / 3 * none.model_flops, rel=1e-6)


def test_frozen_weights_need_no_gradient_of_their_own() -> None:
    whole, frozen = step(sharding="ddp"), step(sharding="ddp", frozen=True, trained_parameters=10**7)
    assert frozen.model_flops == pytest.approx(2 / 3 * whole.model_flops)
    products = [found.term.find("backward").find("products").seconds for found in (whole, frozen)]
    assert products[1] < 0.55 * products[0]
    assert frozen.step_s < whole.step_s  # adapters stream beside every product: a step saves less than its products do


def test_a_bubble_shrinks_with_micro_batches_and_chunks() -> None:
    def share(**changed) -> float:
        term = step(pp=8, dp=1, shards=1, sharding="none", **changed).term
        return term.find("bubble").seconds / term.seconds

    assert share(micro_batches=8) > share(micro_batches=32) > share(micro_batches=32, vpp=4)


@pytest.mark.parametrize(
    ("changed", "share", "head"),
    [
        ({"pp": 8}, 4 / 32, True),  # all of four layers: the one with the head
        ({"pp": 2, "stage_layout": "E" + "t" * 24 + "|" + "t" * 8 + "L"}, 24 / 32, False),
    ],
)
def test_the_slowest_stage_has_the_head_or_the_most_layers(changed, share, head) -> None:
    model = read_model(LLAMA)
    whole, stage = (
        parts_of(job(dp=1, shards=1, sharding="none", **layout), model, H100, network_of(H100)) for layout in ({}, changed)
    )
    assert stage.layers == pytest.approx(32 * share)
    assert (stage.forward["products"] > 1.2 * share * whole.forward["products"]) == head
    assert stage.idle < changed["pp"] - 1  # the others are shorter


def test_a_slow_host_makes_the_fullest_stage_the_slowest() -> None:
    one, model = job(pp=12, dp=1, shards=1, sharding="none"), read_model(LLAMA)
    by_layers = parts_of(one, model, H100, network_of(H100), length=lambda parts: parts.layers)
    assert by_layers.layers == pytest.approx(3)
    assert by_layers.idle == pytest.approx((32 - 3) / 3)


def test_stages_are_as_deep_as_their_layout_says() -> None:
    assert job(pp=2, stage_layout="Ettt|tL").stage_depths(4) == [3, 1]
    with pytest.raises(QuestionError, match="too few"):  # no rule has stages without layers
        job(pp=8).stage_depths(6)


def test_only_stages_of_one_chunk_wait_for_what_is_sent() -> None:
    plain, cut = (step(pp=8, dp=1, shards=1, sharding="none", micro_batches=32, vpp=vpp) for vpp in (1, 4))
    exposed = cut.factors.exposed
    assert cut.term.find("pipeline_sends").seconds == pytest.approx(4 * exposed * plain.term.find("pipeline_sends").seconds)


def test_gathers_hide_behind_long_sequences_and_show_behind_short_ones() -> None:
    def exposed(seq: int) -> float:
        term = step(seq=seq).term
        return term.find("data_parallel").seconds / term.seconds

    assert exposed(256) > 0.4 > 0.15 > exposed(16_384)


def test_a_slow_host_is_a_floor() -> None:
    one = job(seq=128, sharding="ddp", shards=1)
    parts = parts_of(one, read_model(LLAMA), H100, network_of(H100))
    slow = Sustained(host_s=0.01)
    assert ledger(one, parts, slow).seconds >= 32 * 0.01 * one.micro_batches
    assert ledger(one, parts, slow).find("host") is not None
    assert ledger(one, parts, FREE).find("host") is None


def test_offloaded_updates_pay_for_the_host_link() -> None:
    on_card, on_host = step(), step(offload=("optimizer",))
    assert on_host.term.find("offloaded_update").seconds > 5 * on_card.term.find("optimizer").seconds


@pytest.mark.parametrize(
    ("model", "card", "changed", "tokens_per_s"),
    [
        # llm-foundry, scripts/train/benchmarking/README.md (8c8dd48f72): MPT-70B on 512 H100, full recomputation
        ("mosaicml/mpt-70b", "H100 SXM", {"seq": 2048, "rows": 8, "micro_batches": 1, "gpus": 512, "dp": 512, "sharding": "fsdp1",
         "shards": 512, "recomputed": "full", "framework": "llm_foundry"}, 1007),
        # torchtitan, docs/performance.md (3faaa1a0de): Llama 3 8B on 8 A100, selective recomputation, compiled
        ("meta-llama/Meta-Llama-3-8B", "A100 80GB", {"seq": 8192, "rows": 1, "micro_batches": 1, "recomputed": "selective",
         "framework": "torchtitan", "compiled": True}, 2900),
    ],
)  # fmt: skip
def test_published_runs_are_near(model, card, changed, tokens_per_s) -> None:
    found = step(model, find_accelerator(card), **changed)
    assert abs(math.log(found.tokens_per_s_per_gpu / tokens_per_s)) < 0.25


def test_an_answer_has_time_and_a_whole_run_has_days_and_cost() -> None:
    forecast = answer_training(training_question(LLAMA, gpu="H100x8", fsdp=2, seq=4096, tokens="1T", gpu_hour_usd=2.0))
    speed = forecast.speed
    assert speed["tokens_per_s"] == pytest.approx(8 * speed["tokens_per_s_per_gpu"])
    run = speed["run"]
    assert run["steps"] == -(-(10**12) // speed["tokens_per_step"])
    assert run["usd"] == pytest.approx(2.0 * run["gpu_hours"])
    assert run["days"] * 24 * 8 == pytest.approx(run["gpu_hours"])


def _zero3(gpu: str, **words) -> float:
    asked = training_question("meta-llama/Llama-2-7b-hf", gpu=gpu, zero=3, framework="deepspeed", **words)
    return answer_training(asked).speed["step_s"]


def test_a_bridge_joins_two_boards_and_a_named_link_replaces_it() -> None:
    bridged, hosted = _zero3("A100-PCIE-80Gx2"), _zero3("A100-PCIE-80Gx2", link="pcie4")
    assert hosted > 1.5 * bridged
    eight = _zero3("A100-PCIE-80Gx8")
    assert eight == pytest.approx(_zero3("A100-PCIE-80Gx8", link="pcie4"), rel=0.05), "beyond a pair it is the host's link"
    assert eight > 2.5 * _zero3("A100-PCIE-80Gx8", link="nvlink3")


def test_epochs_over_samples_are_tokens() -> None:
    asked = training_question(LLAMA, seq=2048, epochs=3, samples="10k").question
    assert asked.tokens == 3 * 10_000 * 2048
    with pytest.raises(QuestionError, match="--epochs needs --samples"):
        training_question(LLAMA, epochs=3)


def test_adapters_stream_beside_the_products_they_name() -> None:
    def seconds(targets: tuple[str, ...]) -> float:
        asked = {"model": LLAMA, "gpu": "H100", "method": "lora", "targets": targets, "seq": 2048}
        return answer_training(training_question(**asked)).speed["step_s"]

    assert seconds(("q_proj", "v_proj")) < seconds(("q_proj", "v_proj", "down_proj")) < seconds(("all-linear",))


@pytest.mark.parametrize("end", ["embed_tokens", "lm_head"])
def test_an_adapter_outside_the_layers_launches_nothing_in_them(end: str) -> None:
    """A small model waits for its host: one more product in each of its 24 layers would be a fifth of the step."""

    def seconds(*targets: str) -> float:
        asked = {"model": "Qwen/Qwen2.5-0.5B", "gpu": "H100", "method": "lora", "targets": targets, "seq": 512}
        return answer_training(training_question(**asked)).speed["step_s"]

    assert seconds("q_proj", "v_proj", end) < 1.03 * seconds("q_proj", "v_proj")


def test_blackwell_follows_its_power_and_older_cards_a_little() -> None:
    """Llama-3.1-405B takes 1.21 to 1.24 times as long on GB200 as on GB300 (Megatron-Bridge, performance summary)."""
    products = {name: parts_of(job(), read_model(LLAMA), find_accelerator(name), network_of(H100)).forward["products"]
                for name in ("GB200", "GB300")}  # fmt: skip
    assert 1.15 < products["GB200"] / products["GB300"] < 1.3


def test_a_tensor_scaled_torchtitan_gathers_one_byte_a_weight() -> None:
    assert [gathered_bytes("torchtitan", "fp8", scaling) for scaling in ("tensor", "row")] == [1, 2]
    assert gathered_bytes("megatron", "fp8", "tensor") == 2
    wide, narrow = (parts_of(job(weight_bytes=n), read_model(LLAMA), H100, network_of(H100)).gather for n in (2, 1))
    assert 0.45 < narrow / wide < 0.6


def test_ranks_of_a_host_share_its_memory_in_an_offloaded_update() -> None:
    alone, eight = (
        parts_of(job(offload=("optimizer",), gpus=n, dp=n, shards=n), read_model(LLAMA), H100, network_of(H100)).host_update
        for n in (1, 8)
    )
    assert alone / eight < 4  # an eighth of the parameters each, at less than half of the rate


def test_a_sequence_pays_for_its_masked_tiles_once() -> None:
    """1.5 times as long for each pair of tokens at 2k as at 64k tokens: FlashAttention 2 on an A100 (arXiv 2307.08691)."""
    short, long = (
        parts_of(job(seq=n, rows=65536 // n), read_model(LLAMA), H100, network_of(H100)).forward["scores"] / n
        for n in (2048, 65536)
    )
    assert 1.3 < short / long < 1.5


def test_boards_that_were_not_measured_have_a_host_of_their_own() -> None:
    measured, other = (all_gather(card=find_accelerator(n), world=8, size_bytes=1e9).seconds for n in ("L40S", "RTX 6000 Ada"))
    assert other < measured / 5


def test_products_of_unfused_attention_wait_for_their_scores() -> None:
    """On an H100 a product over heads of 128 takes as long as its 16-bit scores are written or read: intensity 128 under 295."""
    read, pairs = read_model(LLAMA), 32 * 4096**2
    fused, unfused = (
        parts_of(job(attention=kind, framework="jax"), read, H100, network_of(H100)) for kind in ("cudnn", "unfused")
    )
    passes = (unfused.forward["products"] - fused.forward["products"]) / read.layers
    crossed = elementwise(card=H100, size_bytes=2.0 * pairs).seconds
    assert passes == pytest.approx(2 * crossed, rel=1e-6)
    assert crossed > 2 * pairs * 128 / H100.flops["bf16"]
    softmax = (unfused.forward["streams"] - fused.forward["streams"]) / read.layers
    assert softmax == pytest.approx(elementwise(card=H100, size_bytes=4.0 * pairs).seconds, rel=1e-6)


@pytest.mark.parametrize(
    ("kernel", "card_class", "share"),
    [("flash2", "ampere_dc", 0.65), ("flash1", "ampere_dc", 0.37), ("flash2", "ada_pro", 0.55), ("cudnn", "hopper_dc", 0.62)],
)
def test_attention_begins_at_the_share_of_the_peak_that_is_known_of_its_kernel(
    kernel: str, card_class: str, share: float
) -> None:
    """FlashAttention 1 and 2 on an A100 and cuDNN's on an H100 as published; 2 on Ada somewhat below an A100."""
    assert prior(kernel, card_class).scores == pytest.approx(1 / share, rel=0.03)


def _shared(attention: str, model: str) -> float:
    """Seconds of attention forward for each of its FLOPs, against those of heads of 128."""
    parts = parts_of(job(attention=attention, sharding="none"), read_model(model), H100, network_of(H100))
    facts = read_model(model)
    mixer = facts.blocks[0].mixers[0]
    return parts.forward["scores"] / (facts.layers * mixer.score_flops(4096))


def test_narrow_heads_pay_more_for_their_exponentials() -> None:
    narrow, wide = "meta-llama/Llama-3.2-1B", LLAMA  # heads of 64 and of 128
    assert 1.1 < _shared("cudnn", narrow) / _shared("cudnn", wide) < 1.4
    assert _shared("flash1", narrow) == pytest.approx(_shared("flash1", wide))


def test_megatron_bridge_takes_the_time_of_megatrons_layers() -> None:
    words = {"gpu": "h200x8", "tp": 2, "seq": 8192, "accumulate": 8}
    own, whose = (
        answer_training(training_question(LLAMA, framework=name, **words)).speed["step_s"]
        for name in ("megatron_bridge", "megatron")
    )
    assert own == pytest.approx(whose, rel=0.02)  # 1.22 times, when it was asked as torch's own operations


def test_biases_of_experts_stream_unless_their_kernels_are_fused() -> None:
    asked = {"framework": "megatron", "sharding": "distributed_optimizer", "ep": 8}
    facts, plain = read_model("openai/gpt-oss-120b"), read_model("Qwen/Qwen3-30B-A3B")
    loops = parts_of(job(**asked), facts, H100, network_of(H100))
    fused = parts_of(job(**asked, fused_experts=True), facts, H100, network_of(H100))
    assert loops.forward["streams"] > 1.6 * fused.forward["streams"]
    assert loops.forward["experts"] > fused.forward["experts"]
    saved = [parts_of(job(**asked, fused_experts=on), plain, H100, network_of(H100)).forward["streams"] for on in (False, True)]
    assert saved[0] < 1.6 * saved[1], "without biases only the activation is saved"
