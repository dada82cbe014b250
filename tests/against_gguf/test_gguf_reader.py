"""The GGUF reader against the format's own Python library: what it writes is read back, and its table of sizes is ours."""

import pytest

from vramcast.models.quantization.formats import GGML_BY_ID
from vramcast.models.sources.gguf import read_header
from vramcast.models.sources.ranges import open_ranges

gguf = pytest.importorskip("gguf")
np = pytest.importorskip("numpy")

#: The library counts a float more for this type, which is never stored in a file.
NEVER_STORED = {"Q8_1"}


@pytest.fixture
def written(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_block_count(3)
    writer.add_rope_freq_base(1e6)
    writer.add_array("llama.attention.head_count_kv", [4, 0, 4])
    writer.add_array("llama.pattern", [True, False, True])
    writer.add_string("general.name", "résumé")
    writer.add_token_list([f"token {i}" for i in range(1000)])
    writer.add_token_scores([0.5] * 10_000)
    writer.add_tensor("a.weight", np.zeros((3, 64), dtype=np.float16))
    writer.add_tensor("b.weight", np.zeros((5, 34 * 2), dtype=np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("c.bias", np.zeros((7,), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "x.gguf"


def test_what_the_library_writes_is_read_back(written):
    with open_ranges(written) as ranges:
        header = read_header(ranges)
    assert header.metadata["llama.block_count"] == 3
    assert header.metadata["llama.attention.head_count_kv"] == [4, 0, 4]
    assert header.metadata["llama.pattern"] == [True, False, True]
    assert header.metadata["general.name"] == "résumé"
    assert header.metadata["tokenizer.ggml.tokens"] == 1000
    assert header.metadata["tokenizer.ggml.scores"] == 10_000
    found = [(t.name, t.dtype, t.shape, t.bytes) for t in header.tensors]
    assert found == [("a.weight", "f16", (3, 64), 384), ("b.weight", "q8_0", (5, 64), 340), ("c.bias", "f32", (7,), 28)]


def test_offsets_agree_with_the_librarys_reader(written):
    with open_ranges(written) as ranges:
        header = read_header(ranges)
    reader = gguf.GGUFReader(written)
    assert header.data_offset == reader.data_offset
    assert [t.bytes for t in header.tensors] == [int(t.n_bytes) for t in reader.tensors]


def test_every_type_the_library_knows_has_the_same_size():
    sizes = {t.value: size for t, size in gguf.constants.GGML_QUANT_SIZES.items() if t.name not in NEVER_STORED}
    ours = {number: (GGML_BY_ID[number].elements, GGML_BY_ID[number].bytes) for number in sizes if number in GGML_BY_ID}
    assert ours == {number: size for number, size in sizes.items() if number in ours}
    assert set(sizes) == set(ours)
