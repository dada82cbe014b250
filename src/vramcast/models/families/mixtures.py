"""Mixtures of experts: which layers are sparse, which config fields give their sizes, what checkpoints call their tensors."""

from collections.abc import Callable

import msgspec

from vramcast.errors import ConfigError, UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import parts
from vramcast.models.inventory import Tensor
from vramcast.models.layers import Dense, Experts

Sparse = Callable[[Config, int], list[bool]]
Width = Callable[[Config], int]


def after_one(config: Config, count: int) -> list[bool]:
    """As ``after_dense``, one layer dense when ``first_k_dense_replace`` is absent (A.X K1)."""
    first = config.integer("first_k_dense_replace", default=1)
    return after_dense(Config({**config.raw, "first_k_dense_replace": first}, config.path), count)


def every_layer(config: Config, count: int) -> list[bool]:
    """All layers are sparse, unless ``mlp_layer_types`` says otherwise."""
    return listed(config, count) or [True] * count


def after_dense(config: Config, count: int) -> list[bool]:
    """Dense for the first ``first_k_dense_replace`` layers, then sparse every ``moe_layer_freq`` (DeepSeek)."""
    first = config.integer("first_k_dense_replace", default=0)
    if isinstance(config.raw.get("moe_layer_freq"), list) and config.raw["moe_layer_freq"]:
        return config.switches("moe_layer_freq", count)
    step = config.size("moe_layer_freq", default=1)
    return listed(config, count) or [i >= first and i % step == 0 for i in range(count)]


def stepped(config: Config, count: int) -> list[bool]:
    """Sparse every ``decoder_sparse_step`` layers except ``mlp_only_layers`` (Qwen)."""
    step, dense = config.size("decoder_sparse_step", default=1), set(config.integers("mlp_only_layers", default=[]))
    return listed(config, count) or [i not in dense and (i + 1) % step == 0 for i in range(count)]


def first_dense(config: Config, count: int) -> list[bool]:
    """Only the first layer is dense, unless ``mlp_layer_types`` says otherwise."""
    return listed(config, count) or [i > 0 for i in range(count)]


def listed(config: Config, count: int) -> list[bool]:
    """The pattern that ``mlp_layer_types`` spells out; empty when it is absent."""
    names = config.per_layer("mlp_layer_types", count)
    for name in names:
        if name not in ("dense", "sparse"):
            raise UnmodelledError(f"{config.path}: mlp_layer_types has {str(name)[:40]!r}, known are 'dense' and 'sparse'")
    return [name == "sparse" for name in names]


def no_shared(config: Config) -> int:
    """No shared expert."""
    return 0


def shared_field(field: str) -> Width:
    """The shared expert's width is a field of its own."""
    return lambda config: config.integer(field, default=0)


def shared_count(field: str = "n_shared_experts") -> Width:
    """So many shared experts, each as wide as a routed one."""
    return lambda config: config.integer(field, default=0) * config.size("moe_intermediate_size")


class Mixture(msgspec.Struct, frozen=True, kw_only=True):
    """Names of a class's mixture: config fields for its sizes, tensor names within a layer.

    ``correction`` names the load-balancing bias ("" = none) and ``held`` how transformers keeps it: "buffer" or "frozen".
    ``shared_gate`` names the sigmoid gate on the shared expert ("" = none).
    """

    sparse: Sparse = every_layer
    routed: str | tuple[str, ...] = "num_experts"
    active: str = "num_experts_per_tok"
    intermediate: str = "moe_intermediate_size"
    shared: Width = no_shared
    experts: str = "mlp.experts."
    names: tuple[str, str, str] = parts.GATED
    bias: bool = False
    router: str = "mlp.gate"
    router_bias: bool = False
    correction: str = ""
    correction_if: str = ""
    held: str = "buffer"
    shared_prefix: str = "mlp.shared_experts."
    shared_gate: str = ""
    shared_bias: str = ""

    def kind(self, config: Config) -> Experts:
        """The sizes of the mixture. Raises ConfigError when more experts are active than there are."""
        names = (self.routed,) if isinstance(self.routed, str) else self.routed
        routed, active = config.size(*names), config.size(self.active)
        if active > routed:
            raise ConfigError(f"{config.path}: {self.active} is {active}, more than {names[0]}, {routed}")
        return Experts(
            routed=routed,
            active=active,
            intermediate=config.size(self.intermediate),
            shared_intermediate=self.shared(config),
            activation=config.text("hidden_act", "hidden_activation", default="silu"),
        )

    def tensors(self, config: Config, kind: Experts, hidden: int) -> tuple[Tensor, ...]:
        """Router, routed experts, shared expert and its gate."""
        steered = bool(self.correction) and (not self.correction_if or config.flag(self.correction_if, default=False))
        return (
            *parts.router(kind, hidden, self.router, bias=self.router_bias),
            *(parts.correction(kind, self.correction, held=self.held) if steered else ()),
            *parts.experts(kind, hidden, prefix=self.experts, bias=self.bias, names=self.names),
            *(self.shared_tensors(config, kind, hidden) if kind.shared_intermediate else ()),
            *(parts.linear(self.shared_gate, 1, hidden, "router", shard=None) if self.shared_gate else ()),
        )

    def shared_tensors(self, config: Config, kind: Experts, hidden: int) -> tuple[Tensor, ...]:
        """The shared expert, with biases where the flag that ``shared_bias`` names says so."""
        shared = Dense(intermediate=kind.shared_intermediate)
        bias = bool(self.shared_bias) and config.flag(self.shared_bias, default=False)
        return parts.gated_mlp(shared, hidden, prefix=self.shared_prefix, role="shared.", bias=bias)
