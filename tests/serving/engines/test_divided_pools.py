"""text-generation-inference, TurboMind, and SGLang with experts on the host: rules held against their own arithmetic."""

import pytest

from vramcast.errors import QuestionError, UnmodelledError
from vramcast.hardware.cards import find_accelerator
from vramcast.models.reading import read_model
from vramcast.serving.engines.base import answer_of
from vramcast.serving.engines.tgi import versions
from vramcast.speed.deployment import LINK_SHARE
from vramcast.speed.placing import deployment_of
from vramcast.units import GiB
from vramcast.workload import Parallel, Serving

LLAMA = "meta-llama/Llama-3.1-8B"
TOKEN = 32 * 2 * 8 * 128 * 2  # layers, keys and values, heads, width, bytes


def _ask(engine: str, *, version: str | None = None, gpu: str = "L4", tp: int = 1, model: str = LLAMA, **options: object):  # type: ignore[no-untyped-def]
    question = Serving(
        model=model,
        engine=engine,
        engine_version=version,
        gpu=gpu,
        gpus=tp,
        context=4096,
        parallel=Parallel(tp=tp),
        options=options,
    )
    return answer_of(question)


def _terms(answer) -> dict[str, int]:  # type: ignore[no-untyped-def]
    return {term.name: int(term.bytes) for term in answer.ranks[0].terms}


def test_tgi_divides_nine_tenths_of_the_card_after_a_full_prefill() -> None:
    answer = _ask("tgi", max_batch_prefill_tokens=4096)
    own = _terms(answer)
    beside = sum(size for name, size in own.items() if name != "kv_cache")
    pool = int(find_accelerator("L4").visible_bytes * 0.90) - beside
    assert answer.cache.tokens == pytest.approx(pool // TOKEN, abs=1)
    assert answer.cache.block_tokens == 1
    assert own["workspace"] == 128 * 2**20


def test_tgi_before_3_leaves_a_twentieth_and_warms_up_all_logits() -> None:
    old, new = (_ask("tgi", version=version, max_batch_prefill_tokens=4096) for version in ("2.4.0", "3.3.6"))
    assert _terms(old)["logits"] == 4096 * 128_256 * 2
    assert _terms(new)["logits"] == 128_256 * 6
    more = find_accelerator("L4").visible_bytes * 0.05 - (_terms(old)["logits"] - _terms(new)["logits"])
    assert (old.cache.tokens - new.cache.tokens) * TOKEN == pytest.approx(more, abs=2 * TOKEN)


def test_tgi_works_its_prefill_out_from_flops() -> None:
    model, card = read_model(LLAMA), find_accelerator("L4")
    attention = 2 * 4096 * 128 * (3 * 32 + 2 * 8)
    work = 32 * (attention + 6 * 4096 * 14336)
    assert versions.prefill_tokens((3, 3, 7), model, card, 1)[0] == int(121e12 / work)
    assert versions.prefill_tokens((2, 4, 0), model, card, 1)[0] == 4096
    assert versions.prefill_tokens((3, 3, 7), model, find_accelerator("RTX 3090"), 1)[0] == 4096  # no row of its table


def test_tgi_holds_tokens_of_all_requests_to_what_is_told() -> None:
    assert _ask("tgi", max_batch_total_tokens=5000).cache.tokens == 5000


def test_lmdeploy_takes_a_share_of_what_weights_leave() -> None:
    answer = _ask("lmdeploy")
    own = _terms(answer)
    free = find_accelerator("L4").visible_bytes - own["weights"] - own["context"]
    assert answer.cache.tokens == int(free * 0.8) // (64 * TOKEN) * 64
    half = _ask("lmdeploy", cache_max_entry_count=0.4)
    assert half.cache.blocks == pytest.approx(answer.cache.blocks / 2, abs=1)


@pytest.mark.parametrize(("policy", "width"), [(8, 128 + 4), (4, 64 + 4)])
def test_lmdeploys_quantised_cache_keeps_a_scale_and_a_zero(policy: int, width: int) -> None:
    assert _ask("lmdeploy", quant_policy=policy).cache.bytes_per_token == 32 * 2 * 8 * width


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backend": "pytorch"}, "PyTorch engine"),
        ({"quant_policy": 5}, "takes 0, 4 or 8"),
        ({"cache_max_entry_count": 1.5}, "takes 0.001 to 0.999"),
    ],
)
def test_what_lmdeploy_cannot_be_asked(options: dict[str, object], words: str) -> None:
    with pytest.raises(QuestionError, match=words):
        _ask("lmdeploy", **options)


def test_lmdeploy_without_room_for_a_prefill_says_so() -> None:
    assert "no room" in _ask("lmdeploy", cache_max_entry_count=0.99).start_error


@pytest.mark.parametrize("engine", ["tgi", "lmdeploy"])
def test_no_speed_is_told_where_no_law_is_known(engine: str) -> None:
    with pytest.raises(UnmodelledError, match=f"how fast {engine} is"):
        deployment_of(_ask(engine))


@pytest.mark.parametrize("engine", ["tgi", "lmdeploy"])
def test_heads_that_ranks_do_not_divide_are_refused(engine: str) -> None:
    with pytest.raises(QuestionError, match="attention heads divisible"):
        _ask(engine, tp=3)


def test_experts_on_the_host_leave_their_share_of_the_card() -> None:
    model = "Qwen/Qwen3-30B-A3B"
    whole = _ask("sglang", model=model, gpu="H100")
    some = _ask("sglang", model=model, gpu="H100", kt_num_gpu_experts=32)
    routed = 48 * 128 * 3 * 2048 * 768 * 2
    assert _terms(whole)["weights"] - _terms(some)["weights"] == pytest.approx(routed * 96 / 128, rel=1e-6)
    with pytest.raises(UnmodelledError, match="processors compute experts"):
        deployment_of(some)


def test_weights_in_host_memory_take_their_time_over_the_link() -> None:
    """Was told as if all were on the card."""
    model = "Qwen/Qwen2.5-14B"
    plain, away = (deployment_of(_ask("vllm", model=model, gpu="RTX 4090", **o)) for o in ({}, {"cpu_offload_gb": 8}))
    assert plain.streamed_s == 0
    assert away.streamed_s == pytest.approx(8 * GiB / (LINK_SHARE * find_accelerator("RTX 4090").host_link_bytes_per_s))
