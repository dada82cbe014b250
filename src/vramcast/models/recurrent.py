"""Layer kinds with a fixed state instead of a growing cache: state space (Mamba 1, 2), linear attention, short convolution.

``conv_elements`` and ``state_elements`` are what ONE sequence keeps in ONE layer, before any engine's padding or data type.
"""

import msgspec


class Mamba1(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="mamba1"):
    """Selective state space, Mamba 1 (arXiv 2312.00752): conv window over ``inner`` channels and inner x state floats."""

    inner: int
    state: int
    conv: int
    dt_rank: int

    @property
    def conv_elements(self) -> int:
        """Convolution window: (kernel - 1) past inputs of each channel."""
        return (self.conv - 1) * self.inner

    @property
    def state_elements(self) -> int:
        """The recurrent state: inner * state."""
        return self.inner * self.state


class Mamba2(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="mamba2"):
    """State space duality, Mamba 2 (arXiv 2405.21060): ``heads`` of ``head_dim`` x ``state``, B and C in ``groups``.

    ``chunk``: tokens that are scanned at once.
    """

    heads: int
    head_dim: int
    groups: int
    state: int
    conv: int
    chunk: int = 256

    @property
    def inner(self) -> int:
        """Channels: heads * head_dim."""
        return self.heads * self.head_dim

    @property
    def conv_width(self) -> int:
        """Channels that pass the convolution: x, B and C."""
        return self.inner + 2 * self.groups * self.state

    @property
    def conv_elements(self) -> int:
        """Convolution window: (kernel - 1) past inputs of each of its channels."""
        return (self.conv - 1) * self.conv_width

    @property
    def state_elements(self) -> int:
        """The recurrent state: heads * head_dim * state."""
        return self.inner * self.state


class GatedDeltaNet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="delta"):
    """Gated delta rule (Qwen3-Next, Qwen3.5; arXiv 2412.06464): a key_dim x value_dim matrix per value head."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int

    @property
    def conv_width(self) -> int:
        """Channels that pass the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def conv_elements(self) -> int:
        """Convolution window: (kernel - 1) past inputs of each channel."""
        return (self.conv - 1) * self.conv_width

    @property
    def state_elements(self) -> int:
        """The recurrent state: value_heads * key_dim * value_dim."""
        return self.value_heads * self.key_dim * self.value_dim


class LinearAttention(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="linear"):
    """Lightning attention (MiniMax-01; arXiv 2401.04658): a head_dim x head_dim matrix per head, no convolution."""

    heads: int
    head_dim: int

    conv_elements = 0

    @property
    def state_elements(self) -> int:
        """The recurrent state: heads * head_dim^2."""
        return self.heads * self.head_dim**2


class ShortConv(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="conv"):
    """Gated short convolution (LFM2): only a window of past inputs."""

    width: int
    conv: int

    state_elements = 0

    @property
    def conv_elements(self) -> int:
        """Convolution window: (kernel - 1) past inputs of each channel."""
        return (self.conv - 1) * self.width


class Rwkv(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="rwkv"):
    """RWKV time mixing: a head_dim x head_dim matrix per head and two shifted inputs."""

    heads: int
    head_dim: int
    hidden: int

    @property
    def conv_elements(self) -> int:
        """The two token-shift vectors."""
        return 2 * self.hidden

    @property
    def state_elements(self) -> int:
        """The recurrent state: heads * head_dim^2."""
        return self.heads * self.head_dim**2
