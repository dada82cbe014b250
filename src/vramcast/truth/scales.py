"""Errors that are bytes and no ratio, and the unit of each: measures that are small beside what they stand with.

A ratio says of a forecast of 0.1 GiB that was 0.3 the same as of one of 10 GiB that was 30. What libraries, pools and graphs take
beside weights misses by bytes that hardly follow the forecast's size, so that a bar made of ratios is several times the forecast.
A bar in such a unit adds bytes: the constant part is what any process may miss, the other part grows with the forecast.
"""

from vramcast.units import GiB

BESIDE_WEIGHTS = frozenset({"overhead", "kv_pool"})
"""Errors of these are bytes: the pool is what the card leaves, so it misses by what the rest does, however small it is."""
GRAPHS = "graphs"
"""So are those of captured graphs: half of their forecasts are below 0.6 GiB."""
OF_A_STEP = {"reserved": "reserved_of_a_step", "device": "device_of_a_step"}
"""The same of a training step, whose bars have cells of their own: what a process that serves holds errs by a factor."""
OF_A_NEW_KIND = {"activation": "activation_of_a_new_kind"}
"""And the peak of a profile run of a model that was not measured under its engine: of known kinds it is arithmetic that errs by
a few hundredths, of others an image or a latent's kernels leave gibibytes beside a small forecast."""
IN_BYTES = BESIDE_WEIGHTS | {GRAPHS} | frozenset((*OF_A_STEP.values(), *OF_A_NEW_KIND.values()))


def bar_name(measure: str, scale: float) -> str:
    """The measure under which a bar's cells are kept: a counter that errs by bytes has other cells than one that does not."""
    return (OF_A_STEP | OF_A_NEW_KIND).get(measure, measure) if scale else measure


def error_scale(overhead: float, weights: float) -> float:
    """How many bytes an overhead, or the pool beside it, may well miss by: the unit of their errors.

    A quarter of a GiB for the context and libraries of any process, a fifth of the overhead for peaks and graphs, a fiftieth of
    the weights, whose own misses cases of these measures hold too. Of 70 first looks in 48 groups whose bytes were kept, bars
    in this unit are narrower than those of a plain ratio by a third and hold as many groups left out (docs/decisions.md).
    """
    return 0.25 * GiB + overhead / 5 + weights / 50


def graphs_scale(predicted: float) -> float:
    """How many bytes captured graphs may well miss by: a tenth of a GiB for their pools, and half of what was forecast.

    Of 76 first looks in 67 groups whose bytes are kept, bars in this unit hold as many groups left out as those of a ratio and
    are 1.2 GiB wide (seen kinds) and 1.8 (new) where the ratio's were 2.6 and 4.6 (docs/decisions.md).
    """
    return 0.1 * GiB + predicted / 2


def activation_scale(predicted: float) -> float:
    """How many bytes the profile run's peak of a new kind may well miss by: as much as its graphs may.

    Of 28 first looks in 27 groups, bars in this unit are 2.7 GiB wide at the median where the ratio's reached 57 times the
    forecast, and hold as many groups left out (docs/decisions.md).
    """
    return graphs_scale(predicted)
