"""Requests at once are those of the whole server: data-parallel ranks share them out, and no answer counts them twice."""

import pytest

from vramcast.planning.serving import forecast_serving
from vramcast.serving.engines.base import answer_of
from vramcast.workload import Parallel, Serving

MODEL, DENSE, CARD = "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-8B", "H100 SXM"


def question(engine: str, concurrency: int, parallel: Parallel, model: str = MODEL, **options: object) -> Serving:
    return Serving(
        model=model, gpu=CARD, gpus=parallel.tp * parallel.dp, engine=engine, context=8192, concurrency=concurrency,
        parallel=parallel, options=options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("engine", "parallel", "options", "groups"),
    [
        ("vllm", Parallel(dp=4), {}, 4),
        ("vllm", Parallel(tp=2, dp=2, ep=4), {}, 2),
        ("vllm", Parallel(tp=4), {}, 1),
        ("sglang", Parallel(tp=4, ep=4), {"enable_dp_attention": True, "dp_size": 4}, 4),
    ],
)
def test_each_group_of_ranks_holds_its_share(engine: str, parallel: Parallel, options: dict[str, object], groups: int) -> None:
    whole = answer_of(question(engine, 18, parallel, **options))
    share = answer_of(question(engine, -(-18 // groups) * groups, parallel, **options))
    assert (whole.resolved.groups, whole.resolved.requests, whole.resolved.concurrency) == (groups, 18, -(-18 // groups))
    assert whole.wanted_bytes == share.wanted_bytes, "the busiest group decides"
    assert whole.cache.pool_bytes == share.cache.pool_bytes


def test_limits_are_of_the_whole_server() -> None:
    one, four = (forecast_serving(question("vllm", 8, Parallel(dp=dp), DENSE)) for dp in (1, 4))
    assert four.workload["concurrency"] == 8
    assert four.limits.max_concurrency == pytest.approx(4 * (one.limits.max_concurrency or 0), rel=0.01)


def test_a_server_of_groups_serves_what_its_groups_serve() -> None:
    """What one rank holds twice over, two ranks hold; one request more needs a third sequence on one of them."""
    one = forecast_serving(question("vllm", 1, Parallel(), DENSE))
    most = int(one.limits.max_concurrency or 0)
    verdicts = [
        forecast_serving(question("vllm", users, Parallel(dp=2), DENSE)).fit.verdict for users in (2 * most, 2 * most + 2)
    ]
    assert verdicts[0] in ("fits", "tight")
    assert verdicts[1] == "partly"
