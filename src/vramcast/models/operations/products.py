"""What one step of a model computes and how a layer is divided, and the matrix products with weights.

A ``Batch`` and a ``Split`` are the inputs of every operation's FLOPs and bytes. Both hold numbers or arrays, so formulas over
them do not branch on a value. Products: plain ones, and the routed experts of a layer, in forward or a backward direction.
"""

from typing import Any

import msgspec


class Batch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sequences of one forward pass on one rank.

    ``decodes`` sequences bring ``decode_tokens`` tokens each (1, or 1 + drafted ones) behind ``decode_past`` cached tokens, a
    mean; ``prefills`` sequences bring ``prefill_tokens`` each behind ``prefill_past``. ``finishing``: how many of the prefills
    end in this pass and so need a row of logits; all of them when None. ``all_logits``: each token's row is wanted (training).
    """

    decodes: Any = 0
    decode_past: Any = 0
    decode_tokens: Any = 1
    prefills: Any = 0
    prefill_tokens: Any = 0
    prefill_past: Any = 0
    finishing: Any = None
    all_logits: bool = False

    @property
    def decode_rows(self) -> Any:
        """Tokens of the decoding sequences."""
        return self.decodes * self.decode_tokens

    @property
    def prefill_rows(self) -> Any:
        """New tokens of the prefilling sequences."""
        return self.prefills * self.prefill_tokens

    @property
    def tokens(self) -> Any:
        """All new tokens: the rows of the layers' matrix products."""
        return self.decode_rows + self.prefill_rows

    @property
    def sampled(self) -> Any:
        """Rows of logits."""
        if self.all_logits:
            return self.tokens
        return self.decode_rows + (self.prefills if self.finishing is None else self.finishing)

    def times(self, replicas: Any) -> "Batch":
        """The same load on each of ``replicas`` data-parallel ranks, seen together."""
        done = None if self.finishing is None else self.finishing * replicas
        return msgspec.structs.replace(self, decodes=self.decodes * replicas, prefills=self.prefills * replicas, finishing=done)


class Split(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one replica's layers are divided among its ranks.

    ``tp`` cuts attention and dense layers. ``attention_dp`` ranks (or groups of ``tp`` ranks) hold different sequences and share
    the experts. Experts are spread over ``moe_ep`` ranks and each is cut in ``moe_tp``; moe_tp * moe_ep = tp * attention_dp.
    ``sequence``: norms and residuals are cut along the tokens (Megatron's sequence parallelism).
    """

    tp: int = 1
    attention_dp: int = 1
    moe_tp: int = 1
    moe_ep: int = 1
    sequence: bool = False

    @classmethod
    def of(cls, *, tp: int = 1, dp: int = 1, ep: int = 1, sequence: bool = False) -> "Split":
        """The split that engines make of tp, dp and ep: experts over all ranks of the replica where ep is asked for.

        Source: vllm/model_executor/layers/fused_moe/config.py FusedMoEParallelConfig.make (ep = dp * tp, or tensor parallel).
        """
        ranks = tp * dp
        spread = ranks if ep == ranks else ep
        return cls(tp=tp, attention_dp=dp, moe_tp=max(1, ranks // spread), moe_ep=spread, sequence=sequence)

    @property
    def ranks(self) -> int:
        """Ranks of the replica."""
        return self.tp * self.attention_dp


class Linear(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="linear"):
    """A matrix product, rows x inputs by inputs x outputs, in forward or one of its two backward directions.

    ``outputs``, ``inputs``: the rank's share. ``weight_bytes``: stored, scales and zero points included. ``form``: the storage
    format's name (float types, fp8-128x128, awq-int4-g128 ...). ``rows``: tokens, sampled, keys (past and new ones of
    prefills: the latent up-projection), decodes. ``matrices``: equal products run as one batched kernel (absorbed latent heads).
    ``direction``: forward, input_gradient or weight_gradient. ``element``: bytes of an activation.
    """

    name: str
    part: str
    outputs: int
    inputs: int
    weight_bytes: float
    form: str
    count: int = 1
    rows: str = "tokens"
    matrices: int = 1
    direction: str = "forward"
    element: float = 2.0

    def rows_of(self, batch: Batch) -> Any:
        """Rows of the product."""
        if self.rows == "tokens":
            return batch.tokens
        if self.rows == "sampled":
            return batch.sampled
        if self.rows == "decodes":
            return batch.decode_rows
        return batch.prefills * (batch.prefill_past + batch.prefill_tokens)

    def flops(self, batch: Batch) -> Any:
        """2 * rows * inputs * outputs."""
        return 2 * self.rows_of(batch) * self.inputs * self.outputs * self.matrices

    def read_bytes(self, batch: Batch) -> Any:
        """Weights and the incoming rows."""
        wide = self.outputs if self.direction != "forward" else self.inputs
        both = self.inputs if self.direction == "weight_gradient" else 0
        weights = 0 if self.direction == "weight_gradient" else self.weight_bytes
        return weights + self.rows_of(batch) * (wide + both) * self.matrices * self.element

    def write_bytes(self, batch: Batch) -> Any:
        """The outgoing rows, or the gradient of the weights."""
        if self.direction == "weight_gradient":
            return self.outputs * self.inputs * self.matrices * self.element
        wide = self.inputs if self.direction == "input_gradient" else self.outputs
        return self.rows_of(batch) * wide * self.matrices * self.element


class ExpertProducts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="experts"):
    """The routed experts of one layer on one rank: both products, permutation and combination included, the router not.

    ``replicas``: attention data-parallel ranks whose tokens all meet here. ``held``: experts on this rank of ``routed``;
    ``active``: experts a token chooses; ``width``: the rank's share of the intermediate size; ``expert_bytes``: of one
    expert here. ``biased``: both products add a bias of the expert's own.
    """

    name: str
    part: str
    hidden: int
    width: int
    routed: int
    held: int
    active: int
    gated: bool
    expert_bytes: float
    form: str
    replicas: int = 1
    count: int = 1
    element: float = 2.0
    passes: float = 1.0
    biased: bool = False

    def rows_of(self, batch: Batch) -> Any:
        """Mean (token, expert) pairs of this rank."""
        return batch.tokens * self.replicas * self.active * (self.held / self.routed)

    def touched(self, batch: Batch) -> Any:
        """Experts of this rank that at least one token chooses, under even routing: held * (1 - (1 - active/routed)^tokens)."""
        return self.held * (1 - (1 - self.active / self.routed) ** (batch.tokens * self.replicas))

    def flops(self, batch: Batch) -> Any:
        """2 * rows * hidden * width for each of its two or three matrices."""
        return 2 * (3 if self.gated else 2) * self.rows_of(batch) * self.hidden * self.width * self.passes

    def read_bytes(self, batch: Batch) -> Any:
        """Weights of the experts touched, and the rows that come in and between."""
        between = (3 if self.gated else 2) * self.width
        rows = self.rows_of(batch) * (self.hidden + between) * self.element
        return self.touched(batch) * self.expert_bytes * self.passes + rows

    def write_bytes(self, batch: Batch) -> Any:
        """The rows that go out."""
        return self.rows_of(batch) * self.hidden * self.element
