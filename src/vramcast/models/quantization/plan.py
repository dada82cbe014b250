"""How tensors are stored: a format as a row of numbers, and a config's rules as a plan of formats.

Bytes of a matrix of ``rows`` outputs and ``columns`` inputs (PyTorch's order) in a format:

    data     rows * columns * bits / 8
    groups   ceil(rows / block rows) * ceil(columns / block columns), or ceil(rows * columns / flat) for bitsandbytes
    sidecar  groups * (scale_bytes + zero_bits / 8) + rows * row_bytes + columns * column_bytes + matrix_bytes
"""

from math import ceil, prod

import msgspec

from vramcast.units import TABLE


class Format(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The storage rule of one quantised (or plain) matrix; see the module's text for the sum.

    ``block``: rows x columns that share a scale and a zero point, 0 = the whole axis. ``flat``: blocks run over the flattened
    matrix instead, of that many elements; ``nested``: that many scales share one fp32 scale of scales (double quantisation).
    ``source``: where the layout is written down.
    """

    name: str
    bits: float
    block: tuple[int, int] = (0, 0)
    flat: int = 0
    nested: int = 0
    scale_bytes: float = 0
    zero_bits: float = 0
    row_bytes: float = 0
    column_bytes: float = 0
    matrix_bytes: float = 0
    source: str = ""

    def bytes_of(self, shape: tuple[int, ...]) -> int:
        """Bytes of one tensor of that shape; leading axes beyond two are stacked matrices."""
        columns = shape[-1] if shape else 1
        rows = prod(shape[:-1])
        groups = self._groups(rows, columns)
        scales = groups * self.scale_bytes + (-(-groups // self.nested) * 4 if self.nested else 0)
        sides = rows * self.row_bytes + columns * self.column_bytes + self.matrix_bytes
        return round(_whole(rows * columns * self.bits / 8) + scales + _whole(groups * self.zero_bits / 8) + sides)

    @property
    def bits_per_weight(self) -> float:
        """Bits per element of a large matrix (8192 x 8192), scales included."""
        return self.bytes_of((8192, 8192)) * 8 / 8192**2

    @property
    def per_element(self) -> float:
        """Bytes of one element with its share of a block's scale and zero point; what rows and matrices add is left out."""
        shared = self.flat or prod(self.block)
        return self.bits / 8 + ((self.scale_bytes + self.zero_bits / 8) / shared if shared else 0)

    def _groups(self, rows: int, columns: int) -> int:
        if self.flat:
            return -(-rows * columns // self.flat)
        high, wide = self.block
        return -(-rows // (high or rows or 1)) * -(-columns // (wide or columns or 1))


def _whole(size: float) -> int:
    """Whole bytes that hold a size, which is exact in binary but for averages read off headers."""
    return ceil(size - 1e-4)


PLAIN = {d.name: Format(name=d.name, bits=d.bits, source="size of the element type") for d in TABLE if d.plain}


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Modules stored in ``format`` (None = left in 16 bits); the first rule that names a module decides.

    ``targets``: module names or patterns, empty = every linear layer. ``roles``: only tensors whose role starts so.
    """

    format: Format | None
    targets: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A whole config. ``ignore``: modules it leaves alone, by name or pattern.

    ``towers``: linear layers of vision and audio towers are quantised unless ignored. ``everywhere``: so are embeddings and head.
    ``head``: the output head's own format. ``kv_cache``: element type the checkpoint asks for its KV cache.
    """

    name: str
    rules: tuple[Rule, ...]
    ignore: tuple[str, ...] = ()
    towers: bool = False
    everywhere: bool = False
    head: Format | None = None
    kv_cache: str | None = None
