"""Reading a model from disk: what is exact, and what is refused with one clear line."""

import json

import pytest
import small_checkpoint as small

from vramcast.errors import ConfigError, QuestionError, UnsafeFileError
from vramcast.models.quantization import scheme_for, weight_bytes
from vramcast.models.sources.index import total_size
from vramcast.models.sources.local import read_path


@pytest.mark.parametrize("shards", [1, 3])
def test_a_folder_is_exact(tmp_path, shards):
    size = small.write_folder(tmp_path / "tiny", shards=shards)
    model = read_path(tmp_path / "tiny")
    assert (model.id, model.layers, model.unmodelled) == ("tiny", small.LAYERS, ())
    assert sum(s.bytes for s in model.stored) == size == weight_bytes(model, scheme_for(model)) == model.parameters * 2


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors"])
def test_any_file_of_a_folder_will_do(tmp_path, name):
    small.write_folder(tmp_path / "tiny", shards=2)
    assert read_path(tmp_path / "tiny" / name).parameters == read_path(tmp_path / "tiny").parameters


def test_headers_beat_the_configs_scheme(tmp_path):
    """The config says fp8; the file keeps one layer's projection in 16 bits and has a scale per row elsewhere."""
    small.write_folder(tmp_path, config={"quantization_config": {"quant_method": "fp8"}})
    entries = {}
    for name, (_, shape) in small.tensors().items():
        quantised = "_proj" in name and "layers.0.self_attn.q_proj" not in name
        entries[name] = ("F8_E4M3" if quantised else "BF16", shape)
        if quantised:
            entries[name.replace("weight", "weight_scale")] = ("F32", (shape[0], 1))
    size = small.write_safetensors(tmp_path / "model.safetensors", entries)
    model = read_path(tmp_path)
    assert model.unmodelled == ()
    assert weight_bytes(model, scheme_for(model)) == weight_bytes(model, scheme_for(model), stored=True) == size


def test_what_files_and_family_disagree_about_is_listed(tmp_path):
    small.write_folder(tmp_path)
    entries = small.tensors() | {"model.layers.0.surprise.weight": ("BF16", (8, 8))}
    del entries["model.layers.1.mlp.up_proj.weight"]
    small.write_safetensors(tmp_path / "model.safetensors", entries)
    extra, absent = read_path(tmp_path).unmodelled
    assert extra == "1 stored tensors (128 B) that the family does not know: model.layers.0.surprise.weight"
    assert absent == "1 tensors of the family that the files do not hold: layers.1.mlp.up_proj"


def test_a_second_copy_of_a_tied_head_is_recognised(tmp_path):
    small.write_folder(tmp_path, config={"tie_word_embeddings": True})
    model = read_path(tmp_path)
    assert (model.head_stored, model.unmodelled) == (True, ())
    assert (
        weight_bytes(model, scheme_for(model), stored=True) - weight_bytes(model, scheme_for(model))
        == small.VOCAB * small.HIDDEN * 2
    )


@pytest.mark.parametrize(
    ("name", "said", "scheme"),
    [
        ("quantize_config.json", {"bits": 4, "group_size": 128, "desc_act": False, "sym": True}, "gptq-int4-g128"),
        ("quantize_config.json", {"bits": 3, "group_size": 64, "quant_method": "gptq"}, "gptq-int3-g64"),
        ("quant_config.json", {"zero_point": True, "q_group_size": 64, "w_bit": 4, "version": "GEMM"}, "awq-int4-g64"),
        ("hf_quant_config.json", {"quantization": {"quant_algo": "FP8"}}, "modelopt-fp8-tensor"),
    ],
)
def test_a_scheme_may_stand_in_a_file_of_its_own(tmp_path, name, said, scheme):
    """AutoGPTQ and AutoAWQ wrote no quantization_config at first: TheBloke's, read as 16 bits without that file."""
    small.write_folder(tmp_path)
    (tmp_path / name).write_text(json.dumps(said))
    (tmp_path / "model.safetensors").unlink()
    assert scheme_for(read_path(tmp_path)).name == scheme


def test_a_gguf_file_is_exact(tmp_path):
    (tmp_path / "tiny-Q8_0.gguf").write_bytes(small.gguf_bytes())
    model = read_path(tmp_path / "tiny-Q8_0.gguf")
    assert (model.layers, model.vocab, model.tied, model.positions) == (small.LAYERS, small.VOCAB, False, 2048)
    matrices = 2 * small.VOCAB * small.HIDDEN + small.LAYERS * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 128)
    assert weight_bytes(model, scheme_for(model)) == matrices * 34 // 32 + (2 * small.LAYERS + 1) * 64 * 4
    assert read_path(tmp_path).id == "tiny-Q8_0"
    assert scheme_for(model).name == "gguf-q8_0"


def test_parts_of_a_split_gguf_are_read_together(tmp_path):
    records = small.gguf_tensors()
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(small.gguf_bytes(records=records[:7]))
    with pytest.raises(QuestionError, match=r"one of 2 parts and m-00002-of-00002\.gguf is not beside it: fetch all parts"):
        read_path(tmp_path / "m-00001-of-00002.gguf")
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(small.gguf_bytes(pairs=[], records=records[7:]))
    assert len(read_path(tmp_path).stored) == len(records)


@pytest.mark.parametrize("name", ["../elsewhere.safetensors", "/etc/passwd", "a/../../b", "..", "C:\\x", "a\x00b", 7, ""])
def test_an_index_cannot_name_files_outside_its_folder(tmp_path, name):
    small.write_folder(tmp_path / "tiny", shards=2)
    (tmp_path / "tiny" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(UnsafeFileError, match="which is not a plain name inside its folder"):
        read_path(tmp_path / "tiny")


def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    small.write_folder(tmp_path / "tiny", shards=2)
    shard = tmp_path / "tiny" / "model-00002-of-00002.safetensors"
    shard.rename(tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeFileError, match="a link that leads out of its folder to"):
        read_path(tmp_path / "tiny")


def test_the_links_of_the_hubs_own_cache_are_followed(tmp_path):
    root = tmp_path / "models--a--b"
    small.write_folder(tmp_path / "tiny", shards=2)
    (root / "blobs").mkdir(parents=True)
    (root / "snapshots" / "main").mkdir(parents=True)
    for file in (tmp_path / "tiny").iterdir():
        file.rename(root / "blobs" / file.name)
        (root / "snapshots" / "main" / file.name).symlink_to(root / "blobs" / file.name)
    assert read_path(root / "snapshots" / "main").stored


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "is not JSON: Expecting value at line 1, column 1"),
        ("[1]", "holds list where an object was expected"),
        ('{"a": 1, "a": 2}', "gives 'a' twice: keep one of them"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"a": ' * 50_000, "is nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "a number has 5,000 digits"),
        ("<html>", "this is a web page, not the file"),
        ("version https://git-lfs.github.com/spec/v1", "this is a Git LFS pointer"),
        ('{"a": "' + "x" * 5 * 2**20 + '"}', r"is larger than 4\.00 GiB|is larger than 4\.0 MiB"),
        ('{"model_type": "llama", "num_hidden_layers": 1000000000}', "num_hidden_layers is 1000000000, expected at most 1024"),
        ('{"model_type": "llama", "hidden_size": NaN}', "hidden_size"),
        ('{"model_type": "llama", "hidden_size": -5}', "hidden_size is -5, expected 1 to"),
        ('{"model_type": "llama", "hidden_size": "wide"}', "hidden_size is 'wide', expected a whole number"),
        ('{"model_type": "llama", "hidden_size": null}', "config.json has no"),
    ],
)  # fmt: skip
def test_a_config_that_nobody_wrote_is_refused(tmp_path, content, text):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=text):
        read_path(tmp_path)


def test_bytes_that_are_not_text_are_refused(tmp_path):
    (tmp_path / "config.json").write_bytes(b'{"a": "\xff\xfe"}')
    with pytest.raises(ConfigError, match="is not text: byte 7 is not UTF-8"):
        read_path(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nothing", "no model at .*nothing: expected a folder with a config.json"),
        ("empty", "no model in .*empty: expected a folder"),
        ("empty/lonely.safetensors", "has no config.json beside it"),
    ],
)
def test_what_is_not_a_model_is_refused(tmp_path, name, text):
    (tmp_path / "empty").mkdir()
    if name.endswith("safetensors"):
        small.write_safetensors(tmp_path / name, small.tensors())
    with pytest.raises(QuestionError, match=text):
        read_path(tmp_path / name)


@pytest.mark.parametrize(
    ("value", "expected"), [(5, 5), (5.0, 5), (None, None), (-5, None), (1e71, None), (True, None), ("5", None)]
)
def test_an_impossible_total_is_not_believed(value, expected):
    assert total_size({"metadata": {"total_size": value}}) == expected
