"""What a trace is asked and what it answers: plain values that cross from this process to the tracing one and back."""

from typing import Any

import msgspec

from vramcast.tracing.distribution import Distribution
from vramcast.tracing.eventlog import EventLog
from vramcast.tracing.policies import DeviceModel
from vramcast.workload import Adapter

# Written to the error output where a script begins: what libraries said before is not its own.
BEGINS = "\x1e"
# How the note of a process begins that holds more than one card.
SEVERAL_CARDS = "the script puts tensors on"


class TraceRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One traced run of a transformers model, described by its config.json alone.

    ``task``: "train" (full steps) or "generate" (a prompt, then ``new_tokens`` with the KV cache). ``images``: of each
    sequence, through the vision tower; ``image_patches``: of one of them, where images keep their size. ``param_dtype``: how
    the model is built; ``autocast``: the compute dtype of torch.autocast, None for none. ``checkpointing``: none, full,
    reentrant, op (torchtitan's list of operations) or layer:N. ``optimizer``: a name of ``recipes.OPTIMIZERS``.
    ``keep_outputs``: the loop holds the model's output, and so the logits, while the backward pass runs. ``adapter``: of PEFT,
    beside a frozen model. ``quant``: None or nf4; ``double_quant``: its scales are quantised too. ``trained_layers``: all
    (None), or these alone and, with ``trains_ends``, embedding and head. ``compiled``: layers run as AOTAutograd partitions
    them. ``distribution``: the ranks it is one of. ``backend``: auto, cuda or meta. ``attention``: sdpa or eager;
    ``attention_kernels``: an order that overrides the card's. ``layers``: build only this many. ``depths``: three numbers of
    layers to trace instead of all; the whole log is written from the first two, checked against the third, and traced in full
    where that fails. Two: without a check.
    """

    config: dict[str, Any]
    task: str = "train"
    micro_batch: int = 1
    seq: int = 2048
    images: int = 0
    image_patches: int = 0
    accumulate: int = 1
    steps: int = 2
    new_tokens: int = 2
    param_dtype: str = "bfloat16"
    autocast: str | None = None
    checkpointing: str = "none"
    optimizer: str = "adamw"
    clip_norm: float | None = None
    keep_outputs: bool = False
    adapter: Adapter | None = None
    trained_layers: tuple[int, ...] | None = None
    trains_ends: bool = False
    quant: str | None = None
    double_quant: bool = True
    compiled: bool = False
    attention: str = "sdpa"
    attention_kernels: tuple[str, ...] = ()
    experts: str | None = None
    layers: int | None = None
    depths: tuple[int, ...] | None = None
    distribution: Distribution = Distribution()
    backend: str = "auto"
    device: DeviceModel = DeviceModel()
    operator_limit: int = 5_000_000

    @property
    def is_plain(self) -> bool:
        """True for a step in which no code asks whether its device is a GPU: meta tensors trace it to the same byte."""
        special = self.autocast or self.quant or self.compiled or self.distribution.world > 1 or self.adapter or self.images
        return not special and not any(kind in self.optimizer for kind in ("fused", "8bit", "paged"))

    @property
    def likely_backend(self) -> str:
        """The backend that is tried first: "auto" takes meta for plain steps."""
        return self.backend if self.backend != "auto" else "meta" if self.is_plain else "cuda"

    @property
    def needs_bitsandbytes(self) -> bool:
        """True when the library's own tensors are part of the run."""
        return bool(self.quant) or "8bit" in self.optimizer or "paged" in self.optimizer

    @property
    def process_key(self) -> tuple[object, ...]:
        """What requests traced in one process must agree on: backend and card are set up once per process."""
        how = self.distribution
        keeps = how.by_deepspeed or how.parallel.pp > 1  # DeepSpeed and torch's pipelines keep their groups for good
        ranks = (how.world, how.parallel.pp) if keeps else how.world > 1  # one rank imports less
        return self.likely_backend, self.device, self.operator_limit, ranks


class ScriptRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user's own script to run under the tracer: ``argv`` as after ``python``, stopped after ``steps`` optimizer steps.

    ``ranks``: the world size it is told; it runs as rank 0 of a process group that only pretends. ``launched``: it finds what a
    launcher such as torchrun tells its processes, be there one rank or several. ``seconds``: when it is stopped, wherever it
    stands; 0 for never. ``write_through``: what it writes goes where it says instead of into a scratch folder.
    ``life``: the stages of the job are marked, and it goes on after its steps until the next one begins. ``environment``:
    variables that stand before the command.
    """

    argv: tuple[str, ...]
    environment: dict[str, str] = {}
    steps: int = 2
    seconds: float = 0
    ranks: int = 1
    launched: bool = False
    write_through: bool = False
    life: bool = False
    device: DeviceModel = DeviceModel()
    operator_limit: int = 5_000_000


class TraceResult(msgspec.Struct, kw_only=True):
    """What a trace found: the log, and what must be known to judge it.

    ``guessed``: values made up because nothing knew them, with how often. ``error``: why the run stopped early, "" when it did
    not; the log then holds what was recorded until there. ``outside_bytes``: managed memory that the caching allocator does not
    hold. ``depths``: the numbers of layers that were traced where the log was written from theirs. ``partial``: the
    program still ran when this was written. ``told``: the last lines that a script which failed wrote to its error output.
    ``written``: the largest files that a script wrote into a scratch folder, with their sizes; ``written_files``: of how many.
    """

    log: EventLog
    backend: str
    depths: tuple[int, ...] = ()
    steps: int = 0
    parameters: int = 0
    trainable: int = 0
    operators: int = 0
    seconds: float = 0.0
    resident_bytes: int = 0
    versions: dict[str, str] = {}
    attention: dict[str, int] = {}
    guessed: dict[str, int] = {}
    notes: tuple[str, ...] = ()
    outside_bytes: int = 0
    error: str = ""
    partial: bool = False
    told: tuple[str, ...] = ()
    written: tuple[tuple[str, int], ...] = ()
    written_files: int = 0
