"""What a heading calls the program of an answer, and whose release it tells."""

import pytest

from vramcast.language import program_and_release


@pytest.mark.parametrize(
    ("workload", "title"),
    [
        ({"framework": "trl", "framework_version": "4.45"}, "TRL, transformers 4.45"),
        ({"framework": "trl", "framework_version": "1.16"}, "TRL 1.16"),
        ({"framework": "hf_trainer", "framework_version": "4.45"}, "HF Trainer 4.45"),
        ({"engine": "vllm", "engine_version": "0.33.0"}, "vLLM 0.33.0"),
        ({"framework": "trl"}, "TRL"),
    ],
)
def test_whose_release_a_heading_tells(workload: dict[str, str], title: str) -> None:
    assert program_and_release(workload) == title
