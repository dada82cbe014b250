"""What only moves rows or states: recurrent state updates, pointwise kernels, exchanges between ranks."""

from typing import Any

import msgspec

from vramcast.models.operations.batch import Batch
from vramcast.models.recurrent import GatedDeltaNet, LinearAttention, Mamba1, Mamba2, Rwkv, ShortConv

Recurrent = Mamba1 | Mamba2 | GatedDeltaNet | LinearAttention | ShortConv | Rwkv


class Recurrence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="recurrence"):
    """A recurrent mixer proper: convolution and state update of one layer; its projections are products of their own.

    ``share``: the rank's fraction of the heads. ``state_bytes``: of one state element. ``chunk``: tokens scanned at once.
    """

    name: str
    part: str
    mixer: Recurrent
    share: float = 1.0
    state_bytes: float = 4.0
    chunk: int = 64
    count: int = 1
    element: float = 2.0
    passes: float = 1.0

    def _token_flops(self) -> float:
        """Of one token, step by step: the state is decayed, written and read."""
        per_state = {GatedDeltaNet: 8, Mamba2: 6, Mamba1: 9, LinearAttention: 5, Rwkv: 8, ShortConv: 0}[type(self.mixer)]
        window = self.mixer.conv_elements * 2
        return (per_state * self.mixer.state_elements + window) * self.share

    def _scan_flops(self) -> float:
        """Of one token in a chunked scan: scores inside the chunk, and the state carried between chunks."""
        mixer, chunk = self.mixer, self.chunk
        if isinstance(mixer, GatedDeltaNet):
            inner = mixer.value_heads * (chunk * (mixer.key_dim + mixer.value_dim) + 3 * mixer.key_dim * mixer.value_dim)
            return 2 * inner * self.share
        if isinstance(mixer, Mamba2):
            inside = mixer.groups * chunk * mixer.state + mixer.heads * chunk * mixer.head_dim
            return (inside + 4 * mixer.state_elements) * self.share
        if isinstance(mixer, LinearAttention):
            return (2 * mixer.heads * chunk * mixer.head_dim + 4 * mixer.state_elements) * self.share
        return self._token_flops()

    def flops(self, batch: Batch) -> Any:
        """Step by step for decodes, by chunks for prefills."""
        return (batch.decode_rows * self._token_flops() + batch.prefill_rows * self._scan_flops()) * self.passes

    @property
    def sequence_bytes(self) -> float:
        """State and convolution window of one sequence on this rank."""
        return (self.mixer.state_elements * self.state_bytes + self.mixer.conv_elements * self.element) * self.share

    @property
    def token_bytes(self) -> float:
        """Inputs and outputs of one token."""
        mixer = self.mixer
        if isinstance(mixer, GatedDeltaNet | Mamba2):
            wide = mixer.conv_width + (mixer.value_heads * mixer.value_dim if isinstance(mixer, GatedDeltaNet) else mixer.inner)
        elif isinstance(mixer, LinearAttention | Rwkv):
            wide = 4 * mixer.heads * mixer.head_dim
        else:
            wide = 3 * (mixer.inner if isinstance(mixer, Mamba1) else mixer.width)
        return wide * self.element * self.share

    def read_bytes(self, batch: Batch) -> Any:
        """The state of every sequence, and each token's inputs."""
        return ((batch.decodes + batch.prefills) * self.sequence_bytes + batch.tokens * self.token_bytes) * self.passes

    def write_bytes(self, batch: Batch) -> Any:
        """The state again, and a third of what a token brings as its output."""
        return (batch.decodes + batch.prefills) * self.sequence_bytes + batch.tokens * self.token_bytes / 3


class Pointwise(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="pointwise"):
    """Norms, rotary positions, activations, residual sums, routing: kernels that only stream rows.

    ``kernels``: launches a layer needs. ``read``, ``write``: elements of one row. ``rows``: tokens or sampled.
    """

    name: str
    part: str
    read: float
    write: float
    kernels: float = 1
    rows: str = "tokens"
    count: int = 1
    element: float = 2.0
    flops_per_element: float = 4.0

    def rows_of(self, batch: Batch) -> Any:
        """Rows that stream through."""
        return batch.sampled if self.rows == "sampled" else batch.tokens

    def flops(self, batch: Batch) -> Any:
        """A few for each element; never counted in model FLOPs."""
        return self.rows_of(batch) * self.read * self.flops_per_element

    def read_bytes(self, batch: Batch) -> Any:
        """Rows in."""
        return self.rows_of(batch) * self.read * self.element

    def write_bytes(self, batch: Batch) -> Any:
        """Rows out."""
        return self.rows_of(batch) * self.write * self.element


class Exchange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="exchange"):
    """Rows that ranks exchange: ``collective`` is all_reduce, all_gather, reduce_scatter, all_to_all or send.

    ``wide``: elements of one row; ``world``: ranks that take part. ``active`` copies of a row leave in an expert all-to-all.
    """

    name: str
    collective: str
    wide: int
    world: int
    part: str = "communication"
    rows: str = "tokens"
    count: int = 1
    element: float = 2.0
    active: float = 1.0

    def rows_of(self, batch: Batch) -> Any:
        """Rows of one rank."""
        return batch.sampled if self.rows == "sampled" else batch.tokens

    def moved_bytes(self, batch: Batch) -> Any:
        """The message: bytes of one rank's rows."""
        return self.rows_of(batch) * self.wide * self.element * self.active

    def flops(self, batch: Batch) -> Any:
        """None to speak of."""
        return 0 * batch.tokens

    def read_bytes(self, batch: Batch) -> Any:
        """The message leaves."""
        return self.moved_bytes(batch)

    def write_bytes(self, batch: Batch) -> Any:
        """And arrives."""
        return self.moved_bytes(batch)
