"""Seconds of one operation for one batch on a deployment's card: which kernel law is asked, with which arguments."""

from typing import Any

from msgspec.structs import replace

from vramcast.errors import UnmodelledError
from vramcast.models.layers import GatedDeltaNet, LinearAttention, Mamba1, Mamba2
from vramcast.models.operations import (
    Batch,
    Exchange,
    ExpertProducts,
    Indexing,
    LatentScores,
    Linear,
    Operation,
    Pointwise,
    Recurrence,
    Scores,
)
from vramcast.quantity import is_array, is_nothing, maximum, minimum, where
from vramcast.speed.deployment import Deployment, law_format, native_formats
from vramcast.speed.kernels.attention import beside_prompts, decode_attention, prefill_attention
from vramcast.speed.kernels.collectives import all_gather, all_reduce, reduce_scatter
from vramcast.speed.kernels.experts import combine, dispatch
from vramcast.speed.kernels.gemm import elementwise, gemm
from vramcast.speed.kernels.harness import in_step
from vramcast.speed.kernels.latent import mla_decode, mla_prefill, sparse_attention
from vramcast.speed.kernels.law import Estimate
from vramcast.speed.kernels.machine import backend, cycles_per_s
from vramcast.speed.kernels.moe import moe
from vramcast.speed.kernels.recurrent import LIGHTNING_BLOCK, convolution, recurrent

# Above this message an engine's own all-reduce gives way to NCCL (vllm/distributed/device_communicators/custom_all_reduce.py).
_CUSTOM_MOST_BYTES = 8 * 2**20
_LOW_LATENCY_TOKENS = 256
# From one small kernel to the next inside a CUDA graph: norm, rotary, activation and their like take about 12 us a layer.
GRAPH_LAUNCH_S = 2e-6
# Launch of a product whose rows come quantised: as that of a 16-bit one.
FUSED_LAUNCH_S = 3e-6
_EXPONENTIALS = 16  # a cycle of one SM


class Clock:
    """Estimates of a deployment's operations. One value per deployment; kernels' rules are looked up once."""

    def __init__(self, deployment: Deployment) -> None:
        self.on = deployment
        self.card = deployment.card
        self.native = native_formats(deployment.card)
        self.cycles = cycles_per_s(deployment.card)
        self._chosen: dict[tuple[str, str], str] = {}

    def rows(self, one: Operation, batch: Batch) -> Estimate | None:
        """Operations that see rows only: products, experts, pointwise kernels, exchanges. None where nothing runs."""
        if isinstance(one, Linear):
            return self._linear(one, batch)
        if isinstance(one, ExpertProducts):
            return self._experts(one, batch)
        if isinstance(one, Pointwise):
            return self._pointwise(one, batch)
        if isinstance(one, Exchange):
            return self._exchange(one, batch)
        return None

    def decode(self, one: Operation, batch: Batch) -> Estimate | None:
        """What decoding sequences add: attention over their caches, states; None for other operations.

        Prompts in the batch matter to kernels that take both in one call.
        """
        if isinstance(one, Scores):
            return self._decode_scores(one, batch)
        if isinstance(one, LatentScores):
            return self._latent_decode(one, batch)
        if isinstance(one, Recurrence):
            return self._state(one, "decode", batch.decodes, batch.decode_tokens)
        return None

    def prefill(self, one: Operation, batch: Batch) -> Estimate | None:
        """What prefilling sequences add."""
        new, past, count = batch.prefill_tokens, batch.prefill_past, batch.prefills
        if isinstance(one, Scores):
            mixer = one.attention
            found = prefill_attention(
                card=self.card, new=new, past=past, heads=one.heads, kv_heads=one.kv_heads, head_dim=mixer.head_dim,
                v_dim=mixer.values, window=one.reach or mixer.chunk, batch=count, kv_dtype=self.on.kv_dtype,
                dtype="fp8" if self.on.kv_dtype == "fp8" and "fp8" in self.native else "bf16",
                backend=self._backend("prefill_attention", self.on.kv_dtype), masked=mixer.causal,
            )  # fmt: skip
            return in_step(found)
        if isinstance(one, LatentScores):
            if one.absorbs_prefill:
                return self._sparse(one, new, past, count)
            found = mla_prefill(
                card=self.card, new=new, past=past, heads=one.heads, batch=count, key_dim=one.attention.head_dim,
                value_dim=one.attention.value_dim, backend=self._backend("mla_prefill", "bf16"),
            )  # fmt: skip
            return in_step(found)
        if isinstance(one, Recurrence):
            return self._state(one, "prefill", count, new)
        return None

    def _decode_scores(self, one: Scores, batch: Batch) -> Estimate:
        keys, heads = batch.decodes * one.decode_keys(batch), one.heads * batch.decode_tokens
        found = decode_attention(
            card=self.card, batch=batch.decodes, context_tokens_sum=keys, heads=heads, kv_heads=one.kv_heads,
            head_dim=one.attention.head_dim, v_dim=one.attention.values, kv_dtype=self.on.kv_dtype,
            backend=self._backend("decode_attention", self.on.kv_dtype),
        )  # fmt: skip
        found = in_step(found)
        if not batch.prefills:
            return found
        return beside_prompts(
            found, card=self.card, context_tokens_sum=keys, heads=one.heads,
            key_value_dim=one.attention.head_dim + one.attention.values,
            backend=self._backend("prefill_attention", self.on.kv_dtype),
        )  # fmt: skip

    def _linear(self, one: Linear, batch: Batch) -> Estimate | None:
        rows = one.rows_of(batch)
        if is_nothing(rows):
            return None
        form = self._format(one.form)
        # Batched small products (absorbed latents) stream all their weights in one launch: one wide product of the same bytes.
        asked = self._backend("gemm", form)
        found = gemm(card=self.card, m=rows, n=one.outputs * one.matrices, k=one.inputs, weight=form, backend=asked)
        found = in_step(found, asked=asked)
        return _quantised_before(found) if self._fused(one, form) else found

    def quantises(self, one: Linear) -> bool:
        """Whether a product's rows are quantised by a kernel of their own before it."""
        form = self._format(one.form)
        return form.startswith(("fp8", "nvfp4")) and not self._fused(one, form)

    def _fused(self, one: Linear, form: str) -> bool:
        return (form == "fp8" and one.form == "fp8-tensor") or (form == "nvfp4" and self.on.engine.fuses_quantising)

    def _experts(self, one: ExpertProducts, batch: Batch) -> Estimate:
        form = self._format(one.form)
        found = moe(
            card=self.card, tokens=batch.tokens * one.replicas, hidden=one.hidden, inter=one.width, experts=one.routed,
            top_k=one.active, weight=form, ep=one.routed / one.held, gated=one.gated, backend=self._backend("moe", form),
            distribution=self.on.distribution,
        )  # fmt: skip
        return in_step(found)

    def _pointwise(self, one: Pointwise, batch: Batch) -> Estimate:
        """A small kernel inside a captured graph: its rows at the law's bandwidth, and the graph's own launch."""
        found = elementwise(card=self.card, size_bytes=(one.read_bytes(batch) + one.write_bytes(batch)) / one.kernels)
        parts = {"launch": GRAPH_LAUNCH_S, "bandwidth": found.parts["bandwidth"]}
        return Estimate(seconds=sum(parts.values()), parts=parts, formula=found.formula, chosen=found.chosen)

    def _exchange(self, one: Exchange, batch: Batch) -> Estimate | None:
        moved, nodes = one.moved_bytes(batch), self.on.nodes(one.world)
        world = one.world
        same: dict[str, Any] = {"card": self.card, "world": -(-world // nodes) * nodes, "nodes": nodes, "fabric": self.on.fabric}
        if one.collective == "all_to_all" or (one.name == "norm of all heads" and self.on.backends.get("qk_norm") == "fused"):
            return None
        if one.collective == "all_gather":
            return all_gather(size_bytes=moved * world, **same)
        if one.collective == "reduce_scatter":
            return reduce_scatter(size_bytes=moved * world, **same)
        nccl = all_reduce(size_bytes=moved, **same)
        if nodes > 1 or is_nothing(moved <= _CUSTOM_MOST_BYTES) or self.on.engine.all_reduce == "nccl":
            return nccl
        own = all_reduce(size_bytes=moved, implementation=self.on.engine.all_reduce, **same)
        if is_array(moved):
            faster = where(moved > _CUSTOM_MOST_BYTES, nccl.seconds, minimum(own.seconds, nccl.seconds))
            return replace(nccl, seconds=faster)
        return own if own.seconds < nccl.seconds else nccl

    def spread(self, one: Exchange, batch: Batch) -> tuple[Estimate, ...]:
        """Dispatch and combination of an expert all-to-all."""
        rows, nodes = one.rows_of(batch), self.on.nodes(one.world)
        way = "low_latency" if rows <= _LOW_LATENCY_TOKENS else "high_throughput"
        same: dict[str, Any] = {
            "card": self.card, "tokens": rows, "hidden": one.wide, "top_k": one.active, "ep": one.world, "nodes": nodes,
            "fabric": self.on.fabric, "implementation": way,
        }  # fmt: skip
        return dispatch(**same), combine(**same)

    def _latent_decode(self, one: LatentScores, batch: Batch) -> Estimate:
        mixer = one.attention
        if one.absorbs_prefill:
            return self._sparse(one, batch.decode_tokens, batch.decode_past, batch.decodes, phase="decode")
        found = mla_decode(
            card=self.card, batch=batch.decodes, context_tokens_sum=batch.decodes * one.decode_keys(batch),
            heads=one.heads * batch.decode_tokens, latent=mixer.kv_rank, rope=mixer.rope_dim, kv_dtype=self.on.kv_dtype,
            backend=self._backend("mla_decode", self.on.kv_dtype),
        )  # fmt: skip
        return in_step(found)

    def _sparse(self, one: LatentScores, new: Any, past: Any, count: Any, *, phase: str = "prefill") -> Estimate:
        mixer = one.attention
        index = mixer.indexer
        return sparse_attention(
            card=self.card, new=new, past=past, batch=count, heads=one.heads, top_k=index.top_k if index else 2048,
            index_heads=index.heads if index else 0, index_dim=index.head_dim if index else 0, latent=mixer.kv_rank,
            rope=mixer.rope_dim, compress=mixer.compression or 1, kv_dtype=self.on.kv_dtype, indexes=index is not None,
            phase=phase,
        )  # fmt: skip

    def _state(self, one: Recurrence, phase: str, count: Any, new: Any) -> Estimate:
        mixer = one.mixer
        if isinstance(mixer, GatedDeltaNet):
            kind = "kda" if self.on.model.family.startswith("kimi") else "gdn"
            shape: dict[str, Any] = {
                "heads": mixer.value_heads,
                "key_heads": mixer.key_heads,
                "key_dim": mixer.key_dim,
                "value_dim": mixer.value_dim,
            }
        elif isinstance(mixer, Mamba2):
            kind = "mamba2"
            shape = {"heads": mixer.heads, "key_heads": mixer.groups, "key_dim": mixer.state, "value_dim": mixer.head_dim}
        elif isinstance(mixer, LinearAttention):
            # Products inside a block and a head_dim x head_dim state between blocks, without a convolution.
            kind = "mamba2"
            shape = {"heads": mixer.heads, "key_heads": mixer.heads, "key_dim": mixer.head_dim, "value_dim": mixer.head_dim,
                     "chunk": LIGHTNING_BLOCK}  # fmt: skip
        else:
            return self._scanned(one, count, new)
        shape = {**shape, "heads": shape["heads"] * one.share, "key_heads": max(1.0, shape["key_heads"] * one.share)}
        core = recurrent(
            card=self.card, kind=kind, phase=phase, batch=count, new=new, state_bytes=one.state_bytes,
            backend=self._backend(f"recurrent_{phase}", kind), **shape,
        )  # fmt: skip
        if isinstance(mixer, LinearAttention):
            return in_step(core)
        before = convolution(
            card=self.card, kind=kind, phase=phase, batch=count, new=new, channels=mixer.conv_width * one.share,
            width=mixer.conv, backend=self._backend(f"convolution_{phase}", kind),
        )  # fmt: skip
        return _after(in_step(before), in_step(core))

    def _scanned(self, one: Recurrence, count: Any, new: Any) -> Estimate:
        """Mamba 1, RWKV and short convolutions: what they move, or the fp32 units' time where that is longer.

        A selective scan takes an exponential for each number of the state and token, sixteen a cycle of an SM (CUDA C++
        Programming Guide, arithmetic instructions: special functions on compute capability 8.0 and 9.0).
        """
        moved = count * 2 * one.sequence_bytes + count * new * one.token_bytes * 4 / 3
        found = elementwise(card=self.card, size_bytes=moved)
        if not isinstance(one.mixer, Mamba1) or not self.cycles:
            return found
        scanned = count * new * one.mixer.state_elements * one.share / (_EXPONENTIALS * self.cycles)
        more = maximum(0.0, scanned - found.parts["bandwidth"])
        return replace(found, seconds=found.seconds + more, parts={**found.parts, "compute": more})

    def _format(self, form: str) -> str:
        """The law's format. fp32 weights of a 16-bit model multiply as TF32 (DeepGEMM, tf32_hc_prenorm_gemm: DeepSeek-V4)."""
        if form == "float32" and self.on.scheme.dtype != "float32":
            return "tf32"
        return self.on.formats.get(form) or law_format(form, self.native)

    def _backend(self, operator: str, precision: str) -> str:
        key = (operator, precision)
        if key not in self._chosen:
            self._chosen[key] = self.on.backends.get(operator) or self._rule(operator, precision)
        return self._chosen[key]

    def _rule(self, operator: str, precision: str) -> str:
        try:
            return backend(
                engine=self.on.engine.kernels,
                version=self.on.version,
                operator=operator,
                card=self.card,
                precision=precision,
                family=self.on.model.family,
            ).name
        except UnmodelledError:
            return ""


def _after(first: Estimate, then: Estimate) -> Estimate:
    """Two kernels one after the other, told as the second."""
    parts = {name: value + first.parts.get(name, 0.0) for name, value in then.parts.items()}
    return Estimate(
        seconds=first.seconds + then.seconds, parts=parts, formula=f"convolution + {then.formula}", chosen=then.chosen
    )


def _quantised_before(found: Estimate) -> Estimate:
    """The product without quantising its rows: with one fixed scale the norm or activation before it writes them in 8 bits."""
    launch = min(found.parts["launch"], FUSED_LAUNCH_S)
    saved = found.parts["launch"] - launch + found.parts.get("quantise", 0.0)
    parts = {**found.parts, "launch": launch, "quantise": 0.0}
    return Estimate(seconds=found.seconds - saved, parts=parts, formula=found.formula, chosen=found.chosen)


__all__ = ["Clock", "Indexing"]
