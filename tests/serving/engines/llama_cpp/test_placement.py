"""Layers and tensors go where llama.cpp puts them; a hostile pattern is refused before it is run."""

import time

import pytest

from vramcast.errors import QuestionError
from vramcast.serving.engines.llama_cpp.placement import expert_overrides, place


def test_the_last_layers_are_on_the_gpu_and_the_output_counts_as_one() -> None:
    spots = place(32, gpus=1, offloaded=10)
    assert spots.layers == (1,) * 23 + (0,) * 10
    assert spots.device("token_embd.weight", None) == spots.host
    assert spots.device("output.weight", None) == 0


def test_two_gpus_share_ninety_five_layers_as_a_log_shows() -> None:
    assert place(94, gpus=2, offloaded=95).layers[:94].count(0) == 48


def test_a_tensor_split_is_a_share_of_layers() -> None:
    assert place(94, gpus=2, offloaded=95, split=[25, 75]).layers[:94].count(0) == 24


def test_the_first_override_that_matches_wins() -> None:
    spots = place(4, gpus=2, offloaded=5, overrides=[r"blk\.0\.ffn=CUDA1,exps=CPU"])
    assert spots.device("blk.0.ffn_up_exps.weight", 0) == 1
    assert spots.device("blk.1.ffn_up_exps.weight", 1) == spots.host


def test_cpu_experts_of_the_first_layers() -> None:
    spots = place(4, gpus=1, offloaded=5, overrides=expert_overrides(2, layers=4, every=False))
    assert [spots.device(f"blk.{i}.ffn_down_exps.weight", i) for i in range(4)] == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("exps", "has no device: write for example exps=CPU"),
        ("(a+)+b=CPU", "repeats a repetition"),
        ("blk[=CPU", "is not a regular expression"),
        ("exps=CUDA7", "names 'CUDA7', but there are 1 GPUs"),
        ("x" * 3000 + "=CPU", "repeats a repetition or refers back"),
    ],
)
def test_bad_overrides_are_refused(override: str, said: str) -> None:
    started = time.process_time()
    with pytest.raises(QuestionError, match=said):
        place(4, gpus=1, offloaded=5, overrides=[override])
    assert time.process_time() - started < 1


def test_a_split_without_shares_is_refused() -> None:
    with pytest.raises(QuestionError, match="is not a list of shares: write for example 3,1"):
        place(4, gpus=2, offloaded=5, split=[0, 0])


def test_more_layers_of_experts_than_there_are_is_all_of_them() -> None:
    assert expert_overrides(10**9, layers=3, every=False) == expert_overrides(3, layers=3, every=False)
    assert len(expert_overrides(10**9, layers=3, every=False)) == 3


@pytest.mark.parametrize("split", [[float("nan")], [0.0, 0.0], [-1.0, 2.0], [float("inf")], [1.0] * 129])
def test_what_is_no_list_of_shares_is_refused(split: list[float]) -> None:
    with pytest.raises(QuestionError, match="is not a list of shares: write for example 3,1"):
        place(4, gpus=2, offloaded=5, split=split)
