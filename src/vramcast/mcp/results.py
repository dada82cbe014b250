"""The objects that the tools give back, as types: those of ``--json``, field by field, and their JSON Schema.

``tests/mcp`` holds the objects themselves against them, both ways.
"""

from typing import Any

import msgspec

from vramcast.ledger import Advice, Assumption, CardRow, Fit, Limits, ModelFacts, Unmodelled


class TermTold(msgspec.Struct, kw_only=True):
    """A named amount, ``bytes`` or ``seconds``, with the formula that gives it; ``terms`` sum to it."""

    name: str
    why: str
    terms: "list[TermTold]"
    bytes: int | msgspec.UnsetType = msgspec.UNSET
    seconds: float | msgspec.UnsetType = msgspec.UNSET
    source: str | msgspec.UnsetType = msgspec.UNSET


class IntervalTold(msgspec.Struct, kw_only=True):
    """Where the measured value falls with probability ``coverage``, learned from ``cases`` measured runs."""

    low_bytes: int
    high_bytes: int
    coverage: float
    cases: int


class InstantTold(msgspec.Struct, kw_only=True):
    """A moment of the run and what is alive then."""

    name: str
    bytes: int


class RankTold(msgspec.Struct, kw_only=True):
    """One kind of GPU of the run: counters, what it needs, what its engine claims, and the ledger of its peak."""

    rank: str
    instant: str
    allocated_bytes: int
    reserved_bytes: int
    device_bytes: int
    needed_bytes: int
    claimed_bytes: int
    interval: IntervalTold | None
    terms: list[TermTold]
    instants: list[InstantTold]
    first_step_bytes: int | msgspec.UnsetType = msgspec.UNSET


class MemoryTold(msgspec.Struct, kw_only=True):
    """``per_gpu``: one entry per distinct kind of rank; ``host``: what lies in the machine's own memory."""

    per_gpu: list[RankTold]
    host: list[TermTold] | msgspec.UnsetType = msgspec.UNSET


class Answered(msgspec.Struct, kw_only=True):
    """The answer to a question of serving or training: the object of ``vramcast serve --json`` and ``train --json``."""

    schema: str
    workload: dict[str, Any]
    assumed: list[Assumption]
    unmodelled: list[Unmodelled]
    model: ModelFacts
    memory: MemoryTold
    fit: Fit
    limits: Limits
    speed: dict[str, Any]
    advice: list[Advice]
    cards: list[CardRow]


class Nearest(msgspec.Struct, kw_only=True):
    """Where nothing fits: what is least short, and by how many bytes on a card."""

    what: str
    short_bytes: int


class ServingChoice(msgspec.Struct, kw_only=True):
    """One deployment of a plan: what runs where, memory, times of a request, cost, and the command that starts a replica."""

    gpu: str
    gpus: int
    engine: str
    model: str
    quant: str | None
    weights: str
    bits: float
    kv_dtype: str | None
    replicas: int
    layout: str
    parallel: dict[str, int]
    attention_ranks: int
    options: dict[str, Any]
    needed_bytes: int
    capacity_bytes: int
    verdict: str
    probability: float | None
    ttft_s: float
    tpot_s: float
    request_s: float
    tokens_per_s: float
    usd_per_hour: float | None
    priced: str
    usd_per_million_tokens: float | None
    power_w: float
    command: str
    lost: str | msgspec.UnsetType = msgspec.UNSET


class TrainingChoice(msgspec.Struct, kw_only=True):
    """One layout of a training plan: memory, time of a step, and the days and cost of the run where its length was told."""

    gpu: str
    gpus: int
    framework: str
    layout: str
    parallel: dict[str, Any]
    micro_batch: int
    accumulate: int
    checkpointing: str | None
    zero: int | None
    fsdp: int | None
    offload: list[str]
    needed_bytes: int
    capacity_bytes: int
    verdict: str
    probability: float | None
    step_s: float
    mfu: float
    tokens_per_s: float
    bound: str
    days: float | None
    usd: float | None
    priced: str
    power_w: float


class DisaggregatedChoice(ServingChoice, kw_only=True):
    """A server with prefill and decode on workers of their own; its command is a decode worker's."""

    prefill_workers: int
    decode_workers: int


class ServingPlanTold(msgspec.Struct, kw_only=True):
    """The deployments, the best first. ``front``: none is both cheaper and faster; ``refused``: reasons with their counts."""

    wanted: dict[str, Any]
    meets: bool
    ranked: list[ServingChoice]
    front: list[ServingChoice]
    fewest_cards: list[ServingChoice]
    by_weights: list[ServingChoice]
    cards_without_job: list[str]
    nearest: Nearest | None
    longest_prompt_ttft_s: float | None
    disaggregated: list[DisaggregatedChoice]
    tried: int
    structures: int
    refused: dict[str, int]


class TrainingPlanTold(msgspec.Struct, kw_only=True):
    """The layouts, the best first. ``front``: none is both cheaper and sooner; ``refused``: reasons with their counts."""

    task: dict[str, Any]
    meets: bool
    ranked: list[TrainingChoice]
    front: list[TrainingChoice]
    fewest_cards: list[TrainingChoice]
    cards_without_job: list[str]
    nearest: Nearest | None
    tried: int
    structures: int
    refused: dict[str, int]


class ServingPlanned(msgspec.Struct, kw_only=True):
    """The object of ``vramcast plan serve --json``; ``memory`` is the best choice's."""

    schema: str
    plan: ServingPlanTold
    assumed: list[Assumption]
    memory: MemoryTold


class TrainingPlanned(msgspec.Struct, kw_only=True):
    """The object of ``vramcast plan train --json``; ``memory`` is the best choice's."""

    schema: str
    plan: TrainingPlanTold
    assumed: list[Assumption]
    memory: MemoryTold


class AgainTold(msgspec.Struct, kw_only=True):
    """The run that a log tells of, forecast, and one corrected line that fits ("" where none was found)."""

    corrected: str
    answer: Answered


class ExplainedTold(msgspec.Struct, kw_only=True):
    """What a log says of memory: engines' messages with figures, the allocator's last message, the run asked again."""

    schema: str
    findings: list[dict[str, Any]]
    out_of_memory: dict[str, Any] | None
    again: AgainTold | None


class PartRead(msgspec.Struct, kw_only=True):
    """One engine or run that the text starts: its answer, or why there is none."""

    name: str
    answer: Answered | None
    error: str


class ReadTold(msgspec.Struct, kw_only=True):
    """What a text was taken for and why, the command that reads it, and the answers to what it starts or says."""

    schema: str
    kind: str
    because: str
    command: str
    parts: list[PartRead]
    explained: ExplainedTold | None


def schema_of(*kinds: type) -> dict[str, Any]:
    """The JSON Schema of an object of these structs, any one of them; an object stands at the root as the protocol asks."""
    schemas, definitions = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}", schema_hook=_anything)
    roots = [definitions[found["$ref"].rpartition("/")[2]] for found in schemas]
    root = roots[0] if len(roots) == 1 else {"type": "object", "anyOf": list(schemas)}
    return {**root, "$defs": definitions}


def _anything(_: type) -> dict[str, Any]:
    """A value of any kind: what was assumed may be a number, a text or a list."""
    return {"description": "what was taken: a number, a text or a list"}
