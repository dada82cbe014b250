"""The question: frozen, validated, serialisable. Both doors (flags, and the files people hold) lead to these values.

A field left at None is resolved by the engine's or framework's defaults of the version asked for, and listed under ``assumed``.
"""

import math
from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.quantity import extent
from vramcast.units import parse_count


def _read_counts(question: msgspec.Struct, *names: str) -> None:
    """Counts written as text ("128k") become numbers, as on the command line."""
    for name in names:
        value = getattr(question, name)
        if isinstance(value, str):
            msgspec.structs.force_setattr(question, name, parse_count(value, what=name))


def _within(name: str, value: int, most: int) -> None:
    """Raises QuestionError for a count, or an array of them, that is not between 1 and ``most``."""
    lowest, highest = extent(value)
    if lowest < 1:
        raise QuestionError(f"{name} is {lowest}: expected at least 1")
    if highest > most:
        raise QuestionError(f"{name} is {highest:,}: expected at most {most:,}")


class Parallel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The layout: how many ranks each form of parallelism uses. ``dp`` is what remains of the world in training.

    ``sp`` is Megatron sequence parallelism (over the TP ranks), ``cp`` context parallelism, ``vpp`` virtual pipeline stages
    per rank. ``replicate``: how many replicas of the sharded model the data-parallel ranks hold (HSDP, MiCS, instances of
    Megatron's distributed optimizer); ``hpz``: ranks that share ZeRO++'s second copy of the weights.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    cp: int = 1
    sp: bool = False
    vpp: int = 1
    replicate: int = 1
    hpz: int = 1

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "dp", "ep", "cp", "vpp", "replicate", "hpz"):
            value = getattr(self, name)
            _within(name, value, 1_000_000)

    @property
    def model_ranks(self) -> int:
        """Ranks that one replica of the model spans: tp * pp * cp."""
        return self.tp * self.pp * self.cp

    @property
    def shards(self) -> int:
        """Ranks that share one replica of what is sharded: dp * cp / replicate."""
        return max(1, self.dp * self.cp // self.replicate)


_MOST_WORKERS = 4096
_MOST_PATCHES = 10**7


class Disaggregated(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Prefill and decode on workers of their own (xPyD): how many of each, and the tensor parallelism of a prefill worker.

    ``prefill_tp`` 0: a prefill worker is laid out as a decode worker. ``link_bytes_per_s``: of the link that caches move
    over, for each card (None: the machine's own). ``clients``: of all workers; the question's ``concurrency`` is a decode
    worker's.
    """

    prefill_workers: int = 1
    decode_workers: int = 1
    clients: int = 0
    prefill_tp: int = 0
    link_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("prefill_workers", "decode_workers"):
            if not 1 <= getattr(self, name) <= _MOST_WORKERS:
                raise QuestionError(
                    f"{name} is {getattr(self, name)}: expected 1 to {_MOST_WORKERS:,}, for example --disagg 2P1D"
                )
        if not 0 <= self.prefill_tp <= _MOST_WORKERS:
            raise QuestionError(f"prefill_tp is {self.prefill_tp}: expected at least 1")


class Traffic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How requests come to a server and what is expected of it, for speed.

    ``rate``: requests a second, open loop (None: ``concurrency`` clients, closed loop). ``cached``: share of a prompt found in
    the prefix cache. ``spread``: how far lengths vary to either side of the typical ones, as a share, in a closed loop (0: all
    alike). ``acceptance``: probability that a drafted token is accepted. ``ttft_s``, ``tpot_s``: the service level
    that a request must meet. ``link_bytes_per_s``, ``host_bandwidth_bytes_per_s``: of the machine at hand, where the
    catalogue's card says otherwise. ``requests``: a file of requests to replay. ``profile``: a machine's own
    factors by name. ``pools``: prefill and decode apart, where the rest of the question is about one decode worker.
    ``images``: in each prompt, beside its text; ``image_patches``: of each, where the model takes any size.
    """

    rate: float | None = None
    cached: float = 0.0
    spread: float | None = None
    acceptance: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    link_bytes_per_s: float | None = None
    host_bandwidth_bytes_per_s: float | None = None
    requests: str | None = None
    profile: str | None = None
    pools: Disaggregated | None = None
    images: int = 0
    image_patches: int = 0

    def __post_init__(self) -> None:
        for name in ("rate", "ttft_s", "tpot_s", "link_bytes_per_s", "host_bandwidth_bytes_per_s"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise QuestionError(f"{name} is {value}: expected a number above 0")
        for name in ("images", "image_patches"):
            if not 0 <= getattr(self, name) <= _MOST_PATCHES:
                raise QuestionError(f"{name} is {getattr(self, name):,}: expected 0 to {_MOST_PATCHES:,}")
        for name, value in (("cached", self.cached), ("acceptance", self.acceptance), ("length_spread", self.spread)):
            if value is not None and not 0 <= value <= 1:
                raise QuestionError(f"{name} is {value}: expected a share from 0 to 1")


# One value, so that a question that says nothing of traffic is printed without it.
USUAL_TRAFFIC = Traffic()


class Serving(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question about inference: one model on some cards under one engine.

    ``context``: longest sequence to allow, tokens (the engine's max-model-len). ``concurrency``: sequences alive at once on all
    ranks, each of that context; where it is left open, of ``prompt`` and ``output`` if both are asked. ``prompt``/``output``:
    typical lengths, for speed and for the cache. ``quant``: weight scheme when it differs from the checkpoint's.
    ``options``: the engine's own flags by their python name (``gpu_memory_utilization``, ``max_num_seqs``, ``n_ubatch`` ...).
    """

    model: str
    gpu: str | None = None
    gpus: int = 1
    engine: str = "vllm"
    engine_version: str | None = None
    context: int | None = None
    concurrency: int | None = None
    prompt: int | None = None
    output: int | None = None
    dtype: str | None = None
    quant: str | None = None
    kv_dtype: str | None = None
    parallel: Parallel = Parallel()
    options: dict[str, Any] = {}
    traffic: Traffic = USUAL_TRAFFIC

    def __post_init__(self) -> None:
        counts = ("context", "concurrency", "prompt", "output", "gpus")
        _read_counts(self, *counts)
        for name in counts:
            value = getattr(self, name)
            if value is not None:
                _within(name, value, 10**12)

    @property
    def asks_for_speed(self) -> bool:
        """Whether it says anything that speed depends on."""
        traffic = self.traffic
        named = (
            self.prompt,
            self.output,
            traffic.rate,
            traffic.requests,
            traffic.ttft_s,
            traffic.tpot_s,
            traffic.pools,
            traffic.images or None,
        )
        return any(value is not None for value in named)


class Adapter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Small trained parts beside a frozen model: LoRA and its relatives. ``targets``: module names or "all-linear".

    ``parameters``: tensors that are no layer of their own, such as fused experts (PEFT's target_parameters); ``sizes``: further
    sizes by PEFT's names (oft_block_size, n_frequency, num_virtual_tokens ...).
    """

    kind: str = "lora"
    rank: int = 8
    targets: tuple[str, ...] = ("all-linear",)
    dropout: float = 0.0
    dtype: str | None = None
    modules_to_save: tuple[str, ...] = ()
    dora: bool = False
    parameters: tuple[str, ...] = ()
    sizes: dict[str, int] = {}

    def __post_init__(self) -> None:
        _within("rank", self.rank, 1_000_000)
        if not 0 <= self.dropout < 1:
            raise QuestionError(f"dropout is {self.dropout}: expected 0 or more, below 1")


class Training(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question about one training step: model, recipe, layout, card.

    None means "what the framework does". ``checkpointing``: none, selective, full or offloaded. ``loss``: eager, fused,
    chunked, linear.
    ``zero``: 0-3, or ``fsdp`` 1/2 for PyTorch's own full sharding. ``offload``: any of optimizer, parameters, activations.
    ``tokens``: of the whole run, for its days and its cost; ``gpu_hour_usd``: what an hour of one card costs.
    ``link_bytes_per_s``: one way between the cards of a machine, where it is not the cards' own.
    """

    model: str
    gpu: str | None = None
    gpus: int = 1
    framework: str = "hf_trainer"
    framework_version: str | None = None
    method: str = "full"
    adapter: Adapter | None = None
    quant: str | None = None
    param_dtype: str | None = None
    compute_dtype: str | None = None
    grad_dtype: str | None = None
    optimizer: str | None = None
    micro_batch: int = 1
    seq: int = 2048
    accumulate: int = 1
    checkpointing: str | None = None
    attention: str | None = None
    loss: str | None = None
    compile: bool | None = None
    zero: int | None = None
    fsdp: int | None = None
    offload: tuple[str, ...] = ()
    parallel: Parallel = Parallel()
    options: dict[str, Any] = {}
    tokens: int | None = None
    gpu_hour_usd: float | None = None
    link_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        counts = ("micro_batch", "seq", "accumulate", "gpus")
        _read_counts(self, *counts)
        for name in counts:
            value = getattr(self, name)
            _within(name, value, 10**9)
        if self.zero not in (None, 0, 1, 2, 3):
            raise QuestionError(f"zero is {str(self.zero)[:40]!r}: DeepSpeed's stages are 0 to 3")
        if self.fsdp not in (None, 1, 2):
            raise QuestionError(f"fsdp is {str(self.fsdp)[:40]!r}: expected 1 or 2, the version of PyTorch's full sharding")
        if self.tokens is not None:
            _within("tokens", self.tokens, 10**18)
        if self.gpu_hour_usd is not None and not 0 <= self.gpu_hour_usd < 10**6:
            raise QuestionError(f"gpu_hour_usd is {self.gpu_hour_usd}: expected a price from 0 on")
        if self.link_bytes_per_s is not None and not 0 < self.link_bytes_per_s < 10**15:
            raise QuestionError(f"link_bytes_per_s is {self.link_bytes_per_s}: expected bytes a second, above 0")
