"""What changed in llama.cpp and when: one row per build from which a habit holds.

ik_llama.cpp, a fork of mid-2024, has its own row. Builds are numbered (b5863); a version that is not known is taken as the newest
read. Sources: the pull requests named in each row.
"""

import re

import msgspec

from vramcast.errors import QuestionError
from vramcast.serving.engines.base import Table, at
from vramcast.serving.engines.llama_cpp.building import GraphRules

LATEST = 9900
"""0c1e57098 (2026-10-01), vendored in llama-cpp-python 0.3.36; the newest source read."""
VERSIONS = ("b1680", "b4500", "b5200", "b5863", "b7700", "b9849", "b9900")
_OLD = GraphRules(gated_unit=False, half_mask=False, every_output=True, embedding_input=False, set_rows=False, key_last=False)
_RELEASE = re.compile(r"v?\d+\.\d+")
# rules by the build they hold from; the pull requests are named where Generation explains each
WINDOW_CACHES: Table[bool] = (((0,), False), ((5400,), True))
GATHERS: Table[bool] = (((0,), False), ((6400,), True))
ABSORBED_LATENT: Table[bool] = (((0,), False), ((5130,), True))
LATENT_VALUES: Table[bool] = (((0,), False), ((5130,), True), ((7800,), False))
INDEXER_KEYS: Table[bool] = (((0,), False), ((9900,), True))
# cells without flash attention; with it always 256. Rounded up since flash attention came (pull 5021)
PADDING: Table[int] = (((0,), 1), ((2776,), 32), ((6200,), 256))
# llama-server opens four unified slots by itself (pull 16736), and takes flash attention where it can (pull 15434)
AUTO_SLOTS: Table[bool] = (((0,), False), ((6700,), True))
FLASH_BY_DEFAULT: Table[bool] = (((0,), False), ((6300,), True))
# --fit is on by itself (pull 16653, of 15 December 2025)
FITS_BY_DEFAULT = 7400


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """How one build makes its graphs, and the rules of its caches."""

    graph_rules: GraphRules
    window_caches: bool = True
    """Sliding layers have a cache of their own, sized by their window (pull 13194, b5400)."""
    absorbed_latent: bool = True
    """DeepSeek's cache holds the latent, one head, keys only (pull 12801, b5130)."""
    latent_values: bool = False
    """Values of the latent are stored beside it, until caches without values (pull 19067, b7800)."""
    indexer_keys: bool = True
    """Layers whose indexer picks tokens keep its keys (pulls 23346, 25407, and only in those layers 26474, of August 2026)."""
    padding: int = 256
    """Cells are padded to this: 32 without flash attention before b6200, not at all before b2776."""
    gathers: bool = False
    """Vulkan reorders its graphs (pull 15489, b6400)."""
    fork: bool = False


FORK = Generation(
    graph_rules=msgspec.structs.replace(_OLD, gated_unit=True, fused_norm=True, fused_experts=True, mask_padding=32),
    window_caches=False,
    absorbed_latent=False,
    indexer_keys=False,
    fork=True,
)
"""ik_llama.cpp of the first half of 2025: no window caches, fused norms and products, its own latent modes."""

GRAPH_RULES: Table[GraphRules] = (
    ((0,), msgspec.structs.replace(_OLD, one_buffer=True, skips_rows=False)),
    ((1842,), msgspec.structs.replace(_OLD, skips_rows=False)),  # ggml_backend_sched, pull 4766
    ((2535,), _OLD),  # output rows, pull 6122
    ((5800,), msgspec.structs.replace(_OLD, gated_unit=True)),  # GLU operations, pull 14158
    ((5900,), msgspec.structs.replace(_OLD, gated_unit=True, set_rows=True)),  # ggml_set_rows, pull 14285
    (
        (7700,),
        msgspec.structs.replace(_OLD, gated_unit=True, set_rows=True, embedding_input=True, key_last=True),
    ),  # pull 18550
    ((9000,), GraphRules(half_mask=False)),  # logits of one row per sequence (n_outputs_max)
    ((9430,), GraphRules()),  # pull 23764, of 28 May 2026
)


def build_number(version: str | None, name: str = "llama_cpp") -> int:
    """5863 from ``b5863`` or ``b5863 (hip)``; the newest for None, and for Ollama's releases, which do not say their build.

    0 for ik_llama.cpp, whose builds are not told apart. Raises QuestionError for other text.
    """
    if name == "ik_llama_cpp":
        return 0
    if version is None or (name == "ollama" and _RELEASE.match(version)):
        return LATEST
    found = re.search(r"\bb?(\d{3,5})\b", version)
    if found is None:
        raise QuestionError(
            f"llama.cpp version {version[:40]!r} is not a build: write for example llama.cpp==b9849 "
            f"(rules are known from {VERSIONS[0]} to {VERSIONS[-1]})"
        )
    return int(found[1])


def build_note(version: str, name: str) -> str:
    """What an answer must say of a version whose own rules were not read; empty when they were."""
    if name == "ollama" and _RELEASE.match(version):
        return f"an Ollama release does not say its llama.cpp: the rules of build {VERSIONS[-1]} are used"
    if name != "ik_llama_cpp" and build_number(version, name) > LATEST:
        return f"newer than the builds read: the rules of {VERSIONS[-1]} are used"
    return ""


def generation(build: int, *, fork: bool, flash: bool) -> Generation:
    """The rules that hold at that build."""
    if fork:
        return FORK
    since = (build,)
    return Generation(
        graph_rules=at(since, GRAPH_RULES),
        window_caches=at(since, WINDOW_CACHES),
        gathers=at(since, GATHERS),
        absorbed_latent=at(since, ABSORBED_LATENT),
        latent_values=at(since, LATENT_VALUES),
        indexer_keys=at(since, INDEXER_KEYS),
        padding=256 if flash else at(since, PADDING),
    )
