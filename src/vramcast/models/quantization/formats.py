"""Named storage formats: the table behind ``--quant`` and behind every quantization_config that is read.

One row per layout, with the place where it is written down. Scales are fp32 where an engine keeps them so, 16-bit where the
checkpoint format fixes that. Adding a scheme is adding a row.

GGUF has tensor types of its own: elements per block, bytes per block, and the bytes that precede each row in some of them.

Sources: ggml/src/ggml-common.h and ggml/include/ggml.h of llama.cpp (ids below 100) and of ik_llama.cpp (the others; types whose
rows start with their own scale have ``row_bytes`` there as ``row_meta_size``). A repacked type ("_r4", "_r8", "_r16")
interleaves rows without changing their size, and its id is 200 above the plain one; the two exceptions have rows of their own.
"""

import msgspec

from vramcast.errors import unknown_name
from vramcast.models.quantization.plan import PLAIN, Format

_CT = "compressed-tensors, compressors and QuantizationStrategy"
_MODELOPT = "TensorRT Model Optimizer, export of hf_quant_config.json"
_GPTQ = "AutoGPTQ QuantLinear: qweight, qzeros, scales fp16, g_idx int32"
_BNB = "bitsandbytes functional.quantize_4bit: absmax per 64 elements, code book of 16 fp32"
_OCP = "OCP Microscaling Formats 1.0: blocks of 32 share one e8m0 scale"


def gptq(bits: int, group: int, *, index: bool = True) -> Format:
    """GPTQ: packed integers, a 16-bit scale and a packed zero point per group of inputs, an int32 group index per input."""
    return Format(
        name=f"gptq-int{bits}" + (f"-g{group}" if group > 0 else ""),
        bits=bits, block=(1, max(group, 0)), scale_bytes=2, zero_bits=bits, column_bytes=4 if index else 0, source=_GPTQ,
    )  # fmt: skip


def awq(bits: int, group: int, *, zero: bool = True) -> Format:
    """AWQ (gemm packing): as GPTQ without the group index."""
    return Format(
        name=f"awq-int{bits}" + (f"-g{group}" if group > 0 else ""),
        bits=bits, block=(1, max(group, 0)), scale_bytes=2, zero_bits=bits if zero else 0,
        source="AutoAWQ WQLinear_GEMM: qweight, qzeros, scales fp16",
    )  # fmt: skip


def bnb4(kind: str, *, double: bool, block: int = 64) -> Format:
    """4 bits by bitsandbytes: fp32 absmax per block; double quantisation: uint8 absmax, an fp32 per 256 of them, an offset."""
    return Format(
        name=kind + ("-dq" if double else ""),
        bits=4, flat=block, nested=256 if double else 0, scale_bytes=1 if double else 4,
        matrix_bytes=64 + (1024 + 4 if double else 0), source=_BNB,
    )  # fmt: skip


def integer(bits: int, block: tuple[int, int], *, scale_bytes: float = 2, symmetric: bool = True) -> Format:
    """Packed or byte integers with a scale per block (compressed-tensors pack-quantized and int-quantized)."""
    return Format(
        name=f"int{bits}-{_blocks(block)}", bits=bits, block=block, scale_bytes=scale_bytes, zero_bits=0 if symmetric else bits,
        matrix_bytes=16 if bits < 8 else 0, source=_CT,
    )  # fmt: skip


def fp8(block: tuple[int, int] = (0, 0), *, scale_bytes: float = 4, static: bool = False) -> Format:
    """8-bit floats with a scale per block; a static activation scale is one fp32 more."""
    return Format(
        name=f"fp8-{_blocks(block)}", bits=8, block=block, scale_bytes=scale_bytes, matrix_bytes=4 if static else 0,
        source="vLLM and transformers fp8: weight_scale or weight_scale_inv per tensor, channel or 128 x 128 block",
    )  # fmt: skip


def nvfp4(group: int = 16, *, static: bool = True) -> Format:
    """NVFP4: 4-bit floats, one fp8 scale per 16 inputs, one fp32 scale per matrix (and one for its input)."""
    return Format(name="nvfp4", bits=4, block=(1, group), scale_bytes=1, matrix_bytes=8 if static else 4, source=_MODELOPT)


def hqq(bits: int, group: int) -> Format:
    """HQQ: packed integers, 16-bit scale and zero per group."""
    return Format(name=f"hqq-int{bits}-g{group}", bits=bits, flat=group, scale_bytes=4, source="HQQ: meta scale and zero, fp16")


def sinq(bits: int, group: int) -> Format:
    """SINQ: as HQQ, and a 16-bit scale for each input too."""
    return Format(
        name=f"sinq-int{bits}-g{group}", bits=bits, flat=group, scale_bytes=4, column_bytes=2,
        source="SINQ (arXiv 2509.22944): scale and shift per group of a row, a second scale per column",
    )  # fmt: skip


def higgs(bits: int, group: int) -> Format:
    """HIGGS: codes, a 16-bit scale per group of inputs, and two code books per matrix."""
    return Format(
        name=f"higgs-int{bits}-g{group}", bits=bits, block=(1, group), scale_bytes=2, matrix_bytes=2 * 2**bits + 4 * 4**bits,
        source="transformers integrations/higgs.py HiggsLinear: weight, scales, tables, tables2",
    )  # fmt: skip


def per_weight(name: str, bits: float, source: str) -> Format:
    """A format known by its average only: bits per weight."""
    return Format(name=name, bits=bits, source=source)


def aqlm(books: int, book_bits: int, inputs: int, outputs: int = 1) -> Format:
    """AQLM: ``books`` codes of ``book_bits`` per group of inputs x outputs, code books of 16-bit vectors, a scale per output."""
    return Format(
        name=f"aqlm-{books}x{book_bits}", bits=books * book_bits / (inputs * outputs), row_bytes=2 / outputs,
        matrix_bytes=books * 2**book_bits * inputs * outputs * 2, source="AQLM QuantizedLinear: codes, codebooks, scales",
    )  # fmt: skip


def _blocks(block: tuple[int, int]) -> str:
    high, wide = block
    if not high and not wide:
        return "tensor"
    if high == 1:
        return f"g{wide}" if wide else "channel"
    return f"{high}x{wide}"


LLM_INT8 = Format(
    name="llm.int8",
    bits=8,
    row_bytes=4,
    matrix_bytes=1,
    source="bitsandbytes Linear8bitLt: CB int8, SCB fp32 per row, weight_format",
)
MXFP4 = Format(name="mxfp4", bits=4, block=(1, 32), scale_bytes=1, source=_OCP)
MXFP6 = Format(name="mxfp6", bits=6, block=(1, 32), scale_bytes=1, source=_OCP)
MXFP8 = Format(name="mxfp8", bits=8, block=(1, 32), scale_bytes=1, source=_OCP)
TORCHAO_INT4 = Format(name="torchao-int4", bits=4, block=(1, 128), scale_bytes=4, source="torchao tinygemm: scale and zero bf16")
TORCHAO_INT8 = Format(name="torchao-int8", bits=8, row_bytes=2, source="torchao Int8WeightOnlyConfig: a scale per output")

#: What ``--quant`` takes.
NAMED: dict[str, Format] = {
    **PLAIN,
    "fp8": fp8(), "fp8-channel": fp8((1, 0)), "fp8-block": fp8((128, 128)), "fp8-static": fp8(static=True),
    "int8": integer(8, (1, 0)), "llm.int8": LLM_INT8,
    "gptq": gptq(4, 128), "gptq-int8": gptq(8, 128), "gptq-int3": gptq(3, 128), "gptq-int2": gptq(2, 128),
    "awq": awq(4, 128), "auto-round": gptq(4, 128), "w8a16": integer(8, (1, 0)),
    "w4a16": integer(4, (1, 128)), "w4a16-asym": integer(4, (1, 128), symmetric=False),
    "nf4": bnb4("nf4", double=False), "nf4-dq": bnb4("nf4", double=True),
    "fp4": bnb4("fp4", double=False), "fp4-dq": bnb4("fp4", double=True),
    "mxfp4": MXFP4, "mxfp6": MXFP6, "mxfp8": MXFP8, "nvfp4": nvfp4(),
    "hqq": hqq(4, 64), "hqq-int8": hqq(8, 64), "hqq-int3": hqq(3, 64), "hqq-int2": hqq(2, 64),
    "aqlm": aqlm(1, 16, 8), "aqlm-2x8": aqlm(2, 8, 8),
    "torchao-int4": TORCHAO_INT4, "torchao-int8": TORCHAO_INT8, "torchao-fp8": fp8((1, 0)),
    "quanto-int8": Format(name="quanto-int8", bits=8, row_bytes=2, source="optimum-quanto: a scale per output"),
    "quanto-int4": Format(name="quanto-int4", bits=4, block=(1, 128), scale_bytes=4, source="optimum-quanto: scale and shift"),
    "quanto-int2": Format(name="quanto-int2", bits=2, block=(1, 128), scale_bytes=4, source="optimum-quanto: scale and shift"),
    "eetq": Format(name="eetq", bits=8, row_bytes=2, source="EETQ: int8 and a 16-bit scale per output"),
    "quip#": per_weight("quip#", 2, "QuIP#: E8P code book, 16 bits per 8 weights"),
    "vptq": per_weight("vptq", 2, "VPTQ: its common 2-bit setting"),
    "bitnet": Format(name="bitnet", bits=2, matrix_bytes=2, source="BitNet in transformers: four ternary weights per byte"),
    "mlx-4bit": Format(name="mlx-int4-g64", bits=4, block=(1, 64), scale_bytes=4, source="MLX affine: scale and bias 16-bit"),
    "mlx-8bit": Format(name="mlx-int8-g64", bits=8, block=(1, 64), scale_bytes=4, source="MLX affine: scale and bias 16-bit"),
}  # fmt: skip

_SPOKEN = {
    "fp8": "fp8-e4m3 fp8-e5m2 float8 fp8-tensor",
    "fp8-channel": "fp8-dynamic ptpc-fp8 fbgemm-fp8 w8a8-fp8 fp8-per-channel",
    "fp8-block": "blockwise-fp8",
    "fp8-static": "modelopt modelopt-fp8",
    "int8": "w8a8 w8a8-int8 smoothquant",
    "llm.int8": "bnb-8bit bnb8 8bit load-in-8bit bitsandbytes-8bit bitsandbytes-int8 llm-int8",
    "nf4-dq": "bnb-4bit bnb4 4bit bitsandbytes bitsandbytes-4bit load-in-4bit qlora",
    "nf4": "bitsandbytes-nf4",
    "fp4": "bitsandbytes-fp4",
    "gptq": "gptq-marlin gptq-int4 gptq-4bit",
    "gptq-int8": "gptq-8bit",
    "awq": "awq-marlin awq-int4 awq-4bit int4-awq",
    "w4a16": "int4 w4a8",
    "w8a16": "int8-wo",
    "auto-round": "autoround",
    "nvfp4": "modelopt-fp4 nvfp4a16",
    "aqlm": "aqlm-2bit",
    "torchao-int4": "int4-wo torchao",
    "quanto-int8": "quanto",
    "mlx-4bit": "mlx",
}
#: Other names for the rows, hyphens for underscores.
ALIASES = {alias: name for name, aliases in _SPOKEN.items() for alias in aliases.split()}


class GgmlType(msgspec.Struct, frozen=True):
    """A GGUF tensor type: blocks of ``elements`` along a row take ``bytes`` each; a row may start with ``row_bytes`` of scale."""

    name: str
    id: int
    elements: int
    bytes: int
    row_bytes: int = 0

    def size_of(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor whose LAST axis is the row (PyTorch's order), rows rounded up to whole blocks."""
        rows = 1
        for length in shape[:-1]:
            rows *= length
        return rows * (-(-(shape[-1] if shape else 1) // self.elements) * self.bytes + self.row_bytes)

    @property
    def bits_per_weight(self) -> float:
        """Bits per element, without what precedes each row."""
        return self.bytes * 8 / self.elements

    @property
    def format(self) -> Format:
        """The same rule as a ``Format``; exact for rows of whole blocks."""
        return Format(name=self.name, bits=self.bits_per_weight, row_bytes=self.row_bytes, source="ggml-common.h")


_PLAIN = (
    GgmlType("f32", 0, 1, 4), GgmlType("f16", 1, 1, 2), GgmlType("bf16", 30, 1, 2), GgmlType("f64", 28, 1, 8),
    GgmlType("i8", 24, 1, 1), GgmlType("i16", 25, 1, 2), GgmlType("i32", 26, 1, 4), GgmlType("i64", 27, 1, 8),
    GgmlType("q4_0", 2, 32, 18), GgmlType("q4_1", 3, 32, 20), GgmlType("q5_0", 6, 32, 22), GgmlType("q5_1", 7, 32, 24),
    GgmlType("q8_0", 8, 32, 34), GgmlType("q8_1", 9, 32, 36), GgmlType("q1_0", 41, 128, 18),
    GgmlType("q2_k", 10, 256, 84), GgmlType("q3_k", 11, 256, 110), GgmlType("q4_k", 12, 256, 144),
    GgmlType("q5_k", 13, 256, 176), GgmlType("q6_k", 14, 256, 210), GgmlType("q8_k", 15, 256, 292),
    GgmlType("iq1_s", 19, 256, 50), GgmlType("iq1_m", 29, 256, 56), GgmlType("iq2_xxs", 16, 256, 66),
    GgmlType("iq2_xs", 17, 256, 74), GgmlType("iq2_s", 22, 256, 82), GgmlType("iq3_xxs", 18, 256, 98),
    GgmlType("iq3_s", 21, 256, 110), GgmlType("iq4_nl", 20, 32, 18), GgmlType("iq4_xs", 23, 256, 136),
    GgmlType("tq1_0", 34, 256, 54), GgmlType("tq2_0", 35, 256, 66), GgmlType("mxfp4", 39, 32, 17), GgmlType("nvfp4", 40, 64, 36),
    GgmlType("q6_0", 133, 32, 26), GgmlType("iq1_bn", 134, 64, 13, 2), GgmlType("iq2_bn", 135, 64, 16, 4),
    GgmlType("i2_s", 36, 4, 1), GgmlType("iq2_k", 137, 256, 76), GgmlType("iq3_k", 138, 256, 110),
    GgmlType("iq4_k", 139, 256, 144), GgmlType("iq5_k", 140, 256, 176), GgmlType("iq6_k", 141, 256, 212),
    GgmlType("iq2_ks", 145, 256, 70, 2), GgmlType("iq3_ks", 156, 256, 102, 2), GgmlType("iq4_ks", 144, 256, 136, 4),
    GgmlType("iq4_kss", 146, 256, 128, 4), GgmlType("iq5_ks", 152, 256, 168, 4), GgmlType("iq2_kl", 157, 256, 86, 2),
    GgmlType("iq1_kt", 158, 256, 56, 4), GgmlType("iq2_kt", 153, 256, 68, 4), GgmlType("iq3_kt", 154, 256, 100, 4),
    GgmlType("iq4_kt", 155, 256, 128, 4), GgmlType("q8_kv", 149, 32, 32, 8),
)  # fmt: skip
_REPACKED = {
    "_r4": "q5_0 q6_0 q2_k q3_k q4_k q5_k q6_k iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s iq4_nl iq2_bn iq2_k iq3_k iq4_k iq5_k "
    "iq4_ks iq5_ks",
    "_r8": "q4_0 q8_0 iq4_xs",
    "_r16": "bf16",
}
_REPACKED_DIFFERENTLY = (
    GgmlType("iq1_s_r4", 219, 32, 6, 2),
    GgmlType("iq1_m_r4", 229, 32, 7, 2),
    GgmlType("q8_k_r8", 399, 256, 258),
    GgmlType("q8_kv_r8", 349, 32, 32, 4),
)


def _rows() -> tuple[GgmlType, ...]:
    plain = {t.name: t for t in _PLAIN}
    packed = tuple(
        msgspec.structs.replace(plain[name], name=name + suffix, id=plain[name].id + 200)
        for suffix, names in _REPACKED.items()
        for name in names.split()
    )
    return _PLAIN + packed + _REPACKED_DIFFERENTLY


GGML_TYPES: dict[str, GgmlType] = {t.name: t for t in _rows()}
GGML_BY_ID: dict[int, GgmlType] = {t.id: t for t in GGML_TYPES.values()}


def ggml_type(name: str) -> GgmlType:
    """The type of that name in any case (``Q4_K``, ``iq4_ks_r4``). Raises QuestionError for an unknown one."""
    found = GGML_TYPES.get(name.lower())
    if found is None:
        raise unknown_name("GGUF tensor type", name, GGML_TYPES)
    return found
