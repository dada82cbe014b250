"""What one step of a model computes, and how a layer is divided: the two inputs of every operation's FLOPs and bytes.

Both hold numbers or arrays, so formulas over them do not branch on a value.
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
