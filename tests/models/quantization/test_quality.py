"""Published losses of quality: by the model nearest in size, and worded by what was measured."""

import pytest

from vramcast.asking import serving_question
from vramcast.asking.asked import answer_serving
from vramcast.models.quantization import scheme_for
from vramcast.models.quantization.quality import PUBLISHED, published_quality
from vramcast.models.reading import read_model


@pytest.mark.parametrize(
    ("scheme", "parameters", "text"),
    [
        ("Q4_K_M", 7e9, "perplexity +2.8% on Llama-3-8B"),
        ("q4_k_m", 70e9, "perplexity +1.2% on Llama-2-70B"),
        ("Q6_K", 14e9, "perplexity +0.35% on Llama-3-8B"),
        ("awq", 8e9, "keeps 96.1 to 98.9% of benchmark scores on Llama-3.1-8B"),
        ("awq", 70e9, "keeps 96.1 to 98.9% of benchmark scores on Llama-3.1-8B"),
        ("fp8", 400e9, "keeps 99.9 to 100% of benchmark scores on Llama-3.1-405B"),
        ("nvfp4", 8e9, "keeps 93.8% of benchmark scores on Llama-3.1-8B"),
    ],
)
def test_the_figure_is_that_of_the_nearest_model(scheme: str, parameters: float, text: str) -> None:
    found = published_quality(scheme, parameters=parameters)
    assert found is not None
    assert found.text == text
    assert found.source


def test_what_nobody_published_is_not_made_up() -> None:
    assert published_quality("nf4", parameters=7e9) is None


def test_a_smaller_file_never_loses_less() -> None:
    ladder = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "IQ4_XS", "Q3_K_M", "Q3_K_S", "Q2_K")
    for size in (8e9, 70e9):
        rows = [r for name in ladder if (r := published_quality(name, parameters=size)) and abs(r.parameters / size - 1) < 0.1]
        assert [r.low for r in rows] == sorted(r.low for r in rows)


def test_every_scheme_with_a_figure_can_be_asked() -> None:
    llama = read_model("meta-llama/Llama-3.1-8B")
    for row in PUBLISHED:
        if row.measure == "perplexity":
            assert answer_serving(serving_question(llama.id, engine="llama.cpp", quant=row.scheme)).worst.needed_bytes
        else:
            assert scheme_for(llama, quant=row.scheme).name


def test_advice_says_what_its_bits_cost() -> None:
    answer = answer_serving(serving_question("meta-llama/Llama-3.1-8B-Instruct", gpu="RTX 3060 12GB", context=8192))
    costs = {advice.change: advice.costs for advice in answer.advice}
    eight = next(text for change, text in costs.items() if change.startswith("--quant"))
    assert "of benchmark scores on Llama-3.1-8B" in eight
