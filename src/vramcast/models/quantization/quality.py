"""What fewer bits cost in quality, as published: the change of perplexity, or the share of benchmark scores that is kept.

A figure belongs to the model that it was measured on; larger models lose less. Shown beside advice and sizes with that model's
name, never carried over as a forecast.
"""

import msgspec

_LLAMA_3_8B = "llama.cpp, perplexity README: Llama 3 8B scoreboard, Wikitext, build f364eb6f"
_LLAMA_2_70B = "llama.cpp, perplexity README: Llama 2 70B scorechart, Wikitext"
_CARDS = "model card of the RedHatAI (Neural Magic) upload on huggingface.co: OpenLLM v1 and v2 against the unquantised model"
_FP_QUANT = "model card of ISTA-DASLab/Llama-3.1-8B-Instruct-FPQuant-QAT-NVFP4 (arXiv 2509.23202): mean of four benchmarks"


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """One published figure. ``parameters``: of the model it was measured on. ``low``/``high``: percent, by ``measure``.

    ``measure``: ``perplexity`` (percent above the 16-bit model's) or ``kept`` (percent of its benchmark scores).
    """

    scheme: str
    model: str
    parameters: float
    measure: str
    low: float
    high: float
    source: str

    @property
    def text(self) -> str:
        """``perplexity +2.8% on Llama-3-8B`` or ``keeps 96.1 to 98.9% of benchmark scores on Llama-3.1-8B``."""
        if self.measure == "perplexity":
            return f"perplexity +{self.low:.{2 if self.low < 1 else 1}f}% on {self.model}"
        span = f"{self.low:g} to {self.high:g}" if self.low != self.high else f"{self.low:g}"
        return f"keeps {span}% of benchmark scores on {self.model}"


def _perplexity(scheme: str, of_8b: float | None, of_70b: float | None) -> tuple[Quality, ...]:
    rows = (("Llama-3-8B", 8.03e9, of_8b, _LLAMA_3_8B), ("Llama-2-70B", 69e9, of_70b, _LLAMA_2_70B))
    return tuple(
        Quality(scheme=scheme, model=model, parameters=size, measure="perplexity", low=loss, high=loss, source=source)
        for model, size, loss, source in rows
        if loss is not None
    )


_SIZES = {"Llama-3.1-8B": 8.03e9, "Llama-3.1-70B": 70.6e9, "Llama-3.1-405B": 406e9}


def _kept(scheme: str, model: str, low: float, high: float, source: str = _CARDS) -> Quality:
    return Quality(scheme=scheme, model=model, parameters=_SIZES[model], measure="kept", low=low, high=high, source=source)


PUBLISHED = (
    *_perplexity("Q8_0", 0.04, None), *_perplexity("Q6_K", 0.35, 0.16), *_perplexity("Q5_K_M", 0.91, 0.40),
    *_perplexity("Q5_K_S", 1.7, 0.50), *_perplexity("Q4_K_M", 2.8, 1.20), *_perplexity("Q4_K_S", 4.3, 1.57),
    *_perplexity("IQ4_XS", 3.7, None), *_perplexity("Q4_0", 7.5, 3.61), *_perplexity("Q3_K_L", 8.9, 3.80),
    *_perplexity("Q3_K_M", 10.5, 4.72), *_perplexity("Q3_K_S", 26.2, 7.89), *_perplexity("Q2_K", 56.5, 8.82),
    *_perplexity("IQ2_M", 38.0, None), *_perplexity("IQ1_M", 309.0, None),
    _kept("fp8", "Llama-3.1-8B", 99.7, 101.2), _kept("fp8", "Llama-3.1-70B", 99.7, 100.0),
    _kept("fp8", "Llama-3.1-405B", 99.9, 100.0),
    _kept("w8a8", "Llama-3.1-8B", 100.3, 101.5), _kept("w8a8", "Llama-3.1-70B", 99.9, 100.0),
    _kept("w8a8", "Llama-3.1-405B", 98.4, 99.3),
    _kept("gptq", "Llama-3.1-8B", 96.1, 98.9), _kept("gptq", "Llama-3.1-405B", 99.0, 100.0),
    _kept("nvfp4", "Llama-3.1-8B", 93.8, 93.8, _FP_QUANT),
)  # fmt: skip
# Schemes whose figures were published under another name: 4-bit weights in groups of 128 with 16-bit arithmetic.
_ALIKE = {"awq": "gptq", "w4a16": "gptq"}


def published_quality(scheme: str, *, parameters: float) -> Quality | None:
    """The published figure of the model nearest in size; None where nobody published one that is known here.

    A much larger model's stands only where no other does: it would promise too much.
    """
    wanted = _ALIKE.get(scheme.lower(), scheme.lower())
    rows = [row for row in PUBLISHED if row.scheme.lower() == wanted]
    if not rows:
        return None
    rows = [row for row in rows if row.parameters <= 2 * parameters] or rows
    return min(rows, key=lambda row: max(row.parameters, parameters) / max(1.0, min(row.parameters, parameters)))
