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


# llama.cpp examples/perplexity/README.md: perplexities of Llama 3 8B (whose base is f16's less its ΔPPL) and of Llama 2 70B
PERPLEXITY = {
    "Llama-3-8B": (6.233160 - 0.001524, {
        "Q8_0": 6.234284, "Q6_K": 6.253382, "Q5_K_M": 6.288607, "Q5_K_S": 6.336598, "Q4_K_M": 6.407115, "Q4_K_S": 6.500529,
        "IQ4_XS": 6.459705, "Q4_0": 6.700147, "Q3_K_L": 6.787876, "Q3_K_M": 6.888498, "Q3_K_S": 7.863786, "IQ2_M": 8.600799,
        "Q2_K": 9.751568, "IQ1_M": 25.493722,
    }),
    "Llama-2-70B": (3.4313, {
        "Q6_K": 3.4367, "Q5_K_M": 3.4451, "Q5_K_S": 3.4483, "Q4_K_M": 3.4725, "Q4_K_S": 3.4852, "Q4_0": 3.5550,
        "Q3_K_L": 3.5617, "Q3_K_M": 3.5932, "Q3_K_S": 3.7019, "Q2_K": 3.7339,
    }),
}  # fmt: skip


@pytest.mark.parametrize("model", PERPLEXITY)
def test_losses_follow_from_the_published_perplexities(model: str) -> None:
    base, found = PERPLEXITY[model]
    told = {row.scheme: row.low for row in PUBLISHED if row.measure == "perplexity" and row.model == model}
    for scheme, perplexity in found.items():
        assert told[scheme] == pytest.approx((perplexity / base - 1) * 100, rel=1e-3, abs=0.06), scheme
