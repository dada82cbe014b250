"""When a framework's release came out: rules are dated, and what a release ran on follows from its month.

Sources: the newest file inside each release's wheel or archive on PyPI (opened: those of 2024 and after; accelerate 1.15,
deepspeed 0.19, axolotl 0.3 to 0.5 and what is older: the release pages).
"""

from vramcast.training.frameworks.common import FIRST_YEAR, is_month, version_of
from vramcast.workload import Training

Version = tuple[int, ...]
Month = tuple[int, int]

RELEASED: dict[str, tuple[tuple[Version, Month], ...]] = {
    "transformers": (
        ((4, 15), (2022, 1)), ((4, 26), (2023, 1)), ((4, 31), (2023, 7)), ((4, 34), (2023, 10)), ((4, 37), (2024, 1)),
        ((4, 41), (2024, 5)), ((4, 45), (2024, 9)), ((4, 46), (2024, 10)), ((4, 48), (2025, 1)), ((4, 51), (2025, 4)),
        ((4, 54), (2025, 7)), ((4, 55), (2025, 8)), ((4, 57), (2025, 10)), ((5, 0), (2026, 1)), ((5, 4), (2026, 3)),
        ((5, 8), (2026, 5)), ((5, 12), (2026, 6)), ((5, 16), (2026, 8)), ((5, 23), (2026, 9)),
    ),
    "accelerate": (
        ((0, 27), (2024, 2)), ((0, 34), (2024, 9)), ((1, 1), (2024, 11)), ((1, 6), (2025, 4)), ((1, 10), (2025, 8)),
        ((1, 15), (2026, 9)),
    ),
    "deepspeed": (((0, 9), (2023, 4)), ((0, 14), (2024, 8)), ((0, 16), (2025, 5)), ((0, 18), (2025, 11)), ((0, 19), (2026, 9))),
    "pytorch": (
        ((1, 13), (2022, 10)), ((2, 0), (2023, 3)), ((2, 1), (2023, 10)), ((2, 2), (2024, 1)), ((2, 3), (2024, 4)),
        ((2, 4), (2024, 7)), ((2, 5), (2024, 10)), ((2, 6), (2025, 1)), ((2, 7), (2025, 4)), ((2, 8), (2025, 8)),
        ((2, 9), (2025, 10)),
    ),
    "trl": (
        ((0, 4), (2023, 3)), ((0, 7), (2023, 8)), ((0, 8), (2024, 3)), ((0, 9), (2024, 6)), ((0, 11), (2024, 9)),
        ((0, 12), (2024, 11)), ((0, 14), (2025, 1)), ((0, 16), (2025, 3)), ((0, 18), (2025, 5)), ((0, 20), (2025, 7)),
        ((0, 21), (2025, 8)), ((0, 22), (2025, 9)), ((0, 24), (2025, 10)), ((0, 25), (2025, 11)), ((0, 26), (2025, 12)),
        ((0, 27), (2026, 1)), ((0, 28), (2026, 2)), ((1, 0), (2026, 3)), ((1, 2), (2026, 4)), ((1, 4), (2026, 5)),
        ((1, 6), (2026, 6)), ((1, 8), (2026, 7)), ((1, 12), (2026, 8)), ((1, 16), (2026, 10)),
    ),
    "axolotl": (
        ((0, 3), (2023, 12)), ((0, 4), (2024, 1)), ((0, 5), (2024, 11)), ((0, 7), (2025, 2)), ((0, 8), (2025, 4)),
        ((0, 10), (2025, 6)), ((0, 12), (2025, 8)),
    ),
    "llama_factory": (
        ((0, 1), (2023, 8)), ((0, 5), (2024, 2)), ((0, 8), (2024, 6)), ((0, 8, 3), (2024, 7)), ((0, 9), (2024, 9)),
        ((0, 9, 1), (2024, 11)), ((0, 9, 3), (2025, 6)),
    ),
    "ms_swift": (
        ((1,), (2023, 10)), ((1, 5), (2024, 1)), ((2,), (2024, 4)), ((2, 6), (2024, 11)), ((3,), (2024, 12)), ((3, 6), (2025, 7)),
        ((3, 9), (2025, 11)), ((4,), (2026, 3)), ((4, 6), (2026, 10)),
    ),
    "torchtitan": (((0, 1), (2025, 6)), ((0, 2), (2025, 10)), ((0, 2, 2), (2026, 2))),
    "torchtune": (((0, 1), (2024, 4)), ((0, 2), (2024, 7)), ((0, 4), (2024, 11)), ((0, 5), (2024, 12)), ((0, 6), (2025, 4))),
    "litgpt": (((0, 4), (2024, 6)), ((0, 5), (2024, 10)), ((0, 5, 12), (2025, 12))),
}  # fmt: skip


def month_of(question: Training, framework: str) -> Version:
    """The month whose rules hold: of the release asked for, or the newest."""
    return released(framework, version_of(question, "9999.1"))


def released(framework: str, version: Version) -> Version:
    """The month of a framework's release, or of the transformers release named instead of one; a month stays as it is.

    A version is returned unchanged where no months are known.
    """
    known = RELEASED["transformers" if is_transformers(version) else framework] if _knows(framework, version) else ()
    return max((month for release, month in known if release <= version), default=known[0][1] if known else version)


def _knows(framework: str, version: Version) -> bool:
    return not is_month(version) and (framework in RELEASED or is_transformers(version))


def is_transformers(version: Version) -> bool:
    """Whether reports mean the library underneath: no framework here has reached 4.15 itself."""
    return (4, 15) <= version < (FIRST_YEAR,)
