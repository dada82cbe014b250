"""How a traced run is divided over its ranks, and which of them is traced: plain values, no torch."""

import msgspec

from vramcast.errors import QuestionError, unknown_name
from vramcast.workload import Parallel

SHARDINGS = ("none", "ddp", "fsdp1", "fsdp2", "zero1", "zero2", "zero3")
SCHEDULES = ("1f1b", "gpipe", "interleaved")
LARGEST_WORLD = 4096


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """What DeepSpeed is told of its buckets and of what stage 3 fetches, elements; 0 for ``reduce_bucket``: the Trainer's "auto".

    ``overlaps``: gradients are reduced on a stream of their own. ``moves_whole``: stage 3 cuts the model up when it is whole on
    the card, without zero.Init around its making.
    """

    reduce_bucket: int = 0
    prefetch: int = 0
    persistent: int = 0
    live: int = 1_000_000_000
    reuse: int = 1_000_000_000
    overlaps: bool = True
    moves_whole: bool = False


class Distribution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The layout of a run as its libraries are told it.

    ``parallel.dp`` counts every data-parallel rank, ``replicate`` the groups of them that each hold the whole of the shards.
    ``sharding``: none, ddp, fsdp1, fsdp2, or DeepSpeed's zero1 to zero3. ``reshard``: gathered weights are let go after forward.
    ``prefetch``: FSDP1 gathers the next unit during backward. ``ends_apart``: FSDP2 gives the embedding, and the last norm with
    the head, groups of their own. ``host_weights``: FSDP keeps its shards on the host. ``compute``, ``reduce``: dtypes of FSDP's
    mixed precision, "" for the weights' own. ``unreduced``: FSDP reduces the gradients of the last micro-batch alone (no_sync).
    ``bucket_view``, ``static_graph``: options of DDP; ``engine``: of DeepSpeed.

    ``sequence_parallel``, ``loss_parallel``: tensor-parallel ranks divide the sequence between the matrix products, and the
    vocabulary of the logits. ``stage``: the pipeline rank that is traced. ``schedule``: its order of micro-batches.

    Raises QuestionError for a name that is none and for a layout that does not divide.
    """

    parallel: Parallel = Parallel()
    sharding: str = "none"
    reshard: bool = True
    prefetch: bool = True
    ends_apart: bool = False
    host_weights: bool = False
    compute: str = ""
    reduce: str = ""
    unreduced: bool = False
    sequence_parallel: bool = False
    loss_parallel: bool = False
    bucket_view: bool = False
    static_graph: bool = False
    engine: Engine = Engine()
    stage: int = 0
    schedule: str = "1f1b"

    def __post_init__(self) -> None:
        if self.sharding not in SHARDINGS:
            raise unknown_name("sharding to trace", self.sharding, SHARDINGS)
        if self.schedule not in SCHEDULES:
            raise unknown_name("pipeline schedule", self.schedule, SCHEDULES)
        if (self.schedule == "interleaved") != (self.parallel.vpp > 1):
            raise QuestionError(
                f"schedule {self.schedule} with {self.parallel.vpp} chunks per rank: interleaved goes with --vpp 2 or more"
            )
        dp, replicas = self.parallel.dp, self.parallel.replicate
        if dp % replicas:
            raise QuestionError(f"{dp} data-parallel ranks do not divide into {replicas} replicas")
        if self.world > LARGEST_WORLD:
            raise QuestionError(f"{self.world:,} ranks are more than the tracer pretends: at most {LARGEST_WORLD:,}")

    @property
    def world(self) -> int:
        """All ranks."""
        return self.parallel.dp * self.parallel.model_ranks

    @property
    def by_deepspeed(self) -> bool:
        """Whether DeepSpeed's engine runs the step."""
        return self.sharding.startswith("zero")

    @property
    def divides(self) -> bool:
        """Whether a rank holds less than the whole model, so that the whole is never built on its card."""
        parallel = self.parallel
        return self.sharding in {"fsdp1", "fsdp2"} or parallel.tp * parallel.pp * parallel.ep > 1

    @property
    def rank(self) -> int:
        """The global rank that is traced: the first of its pipeline stage."""
        return self.stage * (self.world // self.parallel.pp)
