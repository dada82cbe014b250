"""Mixtures whose checkpoints keep all experts of a layer in one tensor: gpt-oss, Llama 4, Granite MoE, Aria, DBRX.

Source: each class in transformers 5.23 and its conversion_mapping.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, skeleton, spans
from vramcast.models.families.mixtures import Mixture, shared_field
from vramcast.models.families.skeleton import Style
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Attention, Experts


def read(config: Config, *, prefix: str = "") -> Model:
    """A mixture with stacked experts; ``prefix`` defaults to "model.", DBRX's to "transformer."."""
    kind = config.text("model_type")
    if kind == "dbrx":
        return _dbrx(config, prefix or "transformer.")
    return skeleton.read(config, STYLES[kind], prefix=prefix or "model.")


class Stacked(Mixture, frozen=True, kw_only=True):
    """A mixture in two tensors. ``transposed``: (experts, input, output) as gpt-oss and Llama 4 keep them.

    ``up`` and ``down`` are full tensor names within the layer;
    ``fused_shared`` names a shared MLP whose gate and up are one tensor.
    """

    up: str = "mlp.experts.gate_up_proj"
    down: str = "mlp.experts.down_proj"
    transposed: bool = False
    fused_shared: str = ""

    def tensors(self, config: Config, kind: Experts, hidden: int) -> tuple[Tensor, ...]:
        """Router, the two stacks with their biases, shared expert."""
        return (
            *parts.router(kind, hidden, self.router, bias=self.router_bias),
            *_stack(self.up, kind.routed, 2 * kind.intermediate, hidden, transposed=self.transposed, cut=True),
            *_stack(self.down, kind.routed, hidden, kind.intermediate, transposed=self.transposed, cut=False),
            *(self._biases(kind, hidden) if self.bias else ()),
            *(self._shared(config, kind, hidden) if kind.shared_intermediate else ()),
        )

    def _biases(self, kind: Experts, hidden: int) -> tuple[Tensor, ...]:
        up = Tensor(
            name=f"{self.up}_bias", shape=(kind.routed, 2 * kind.intermediate), role="expert.bias", shard=1, stacked=kind.routed
        )
        return up, Tensor(name=f"{self.down}_bias", shape=(kind.routed, hidden), role="expert.bias", stacked=kind.routed)

    def _shared(self, config: Config, kind: Experts, hidden: int) -> tuple[Tensor, ...]:
        width = kind.shared_intermediate
        if not self.fused_shared:
            return self.shared_tensors(config, kind, hidden)
        return (
            *parts.linear(f"{self.fused_shared}input_linear", 2 * width, hidden, "shared.gate_up", shard=0),
            *parts.linear(f"{self.fused_shared}output_linear", hidden, width, "shared.down", shard=1),
        )


def _stack(name: str, experts: int, outputs: int, inputs: int, *, transposed: bool, cut: bool) -> tuple[Tensor, ...]:
    """One stack: column-parallel (``cut`` on its outputs) or row-parallel (on its inputs)."""
    shape = (experts, inputs, outputs) if transposed else (experts, outputs, inputs)
    role = "expert.gate_up" if cut else "expert.down"
    return (Tensor(name=name, shape=shape, role=role, shard=2 if cut == transposed else 1, stacked=experts),)


def _llama4_layers(config: Config, count: int) -> list[bool]:
    """``moe_layers``, else every ``interleave_moe_layer_step``-th layer."""
    step = config.size("interleave_moe_layer_step", default=1)
    chosen = set(config.integers("moe_layers", default=[*range(step - 1, count, step)]))
    return [i in chosen for i in range(count)]


def _own_width(config: Config) -> int:
    """The shared expert is as wide as a routed one."""
    return config.size("intermediate_size")


def _aria_shared(config: Config) -> int:
    return config.size("intermediate_size") * config.size("moe_num_shared_experts", default=2)


def _granite() -> Stacked:
    return Stacked(
        routed="num_local_experts",
        intermediate="intermediate_size",
        router="block_sparse_moe.router.layer",
        up="block_sparse_moe.input_linear.weight",
        down="block_sparse_moe.output_linear.weight",
        shared=shared_field("shared_intermediate_size"),
        fused_shared="shared_mlp.",
    )


STYLES: dict[str, Style] = {
    "gpt_oss": Style(
        span=spans.every(2), sinks=True,
        mixture=Stacked(
            routed="num_local_experts", intermediate="intermediate_size", router="mlp.router", router_bias=True, bias=True,
            transposed=True,
        ),
    ),
    "llama4_text": Style(
        span=spans.chunked, intermediate="intermediate_size_mlp", mlp_prefix="feed_forward.",
        mixture=Stacked(
            sparse=_llama4_layers, routed="num_local_experts", intermediate="intermediate_size", router="feed_forward.router",
            up="feed_forward.experts.gate_up_proj", down="feed_forward.experts.down_proj", transposed=True,
            shared=_own_width, shared_prefix="feed_forward.shared_expert.",
        ),
    ),
    "granitemoe": Style(mixture=_granite()),
    "granitemoeshared": Style(mixture=_granite()),
    "granitemoe_swa": Style(span=spans.every(4, first=True), sinks=True, mixture=_granite()),
    "aria_text": Style(
        mlp_bias="mlp_bias",
        mixture=Stacked(
            routed="moe_num_experts", active="moe_topk", intermediate="intermediate_size", router="mlp.router",
            up="mlp.experts.fc1.weight", down="mlp.experts.fc2.weight", transposed=True, shared=_aria_shared,
            shared_bias="mlp_bias",
        ),
    ),
}  # fmt: skip


def _dbrx(config: Config, prefix: str) -> Model:
    """DBRX: fused qkv, every expert's w1, v1 and w2 flattened into one matrix each."""
    hidden, heads = config.size("d_model"), config.size("n_heads")
    inner, outer = config.child("ffn_config"), config.child("attn_config")
    kind = Attention(heads=heads, kv_heads=outer.size("kv_n_heads", default=1), head_dim=max(1, hidden // heads))
    experts = Experts(
        routed=inner.size("moe_num_experts"), active=inner.size("moe_top_k"), intermediate=inner.size("ffn_hidden_size")
    )
    rows = experts.routed * experts.intermediate
    roles = {"w1": "expert.gate", "v1": "expert.up", "w2": "expert.down"}
    block = Block(
        name=f"{prefix}blocks.{{}}.",
        indices=tuple(range(config.size("n_layers"))),
        mixers=(kind,),
        feedforward=experts,
        tensors=(
            *parts.fused_attention(kind, hidden, qkv="norm_attn_norm.attn.Wqkv", out="norm_attn_norm.attn.out_proj", bias=False),
            *parts.norms(hidden, "norm_attn_norm.norm_1", "norm_attn_norm.norm_2"),
            *parts.router(experts, hidden, "ffn.router.layer"),
            *(
                Tensor(name=f"ffn.experts.mlp.{name}", shape=(rows, hidden), role=role, shard=0, stacked=experts.routed)
                for name, role in roles.items()
            ),
        ),
    )
    return parts.decoder(
        config,
        hidden=hidden,
        blocks=(block,),
        embedding=f"{prefix}wte.weight",
        norm=parts.norms(hidden, f"{prefix}norm_f"),
        head="lm_head.weight",
    )
