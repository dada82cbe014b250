"""torchtitan's own training entry point, unmodified, under the tracer: its debug model on text and a tokenizer made here."""

import importlib.metadata
import importlib.util
import json
from pathlib import Path

import pytest

from vramcast.tracing.request import ScriptRequest, TraceResult
from vramcast.tracing.run import trace_script

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
if importlib.util.find_spec("torchtitan") is None or not importlib.metadata.version("torchtitan").startswith("0.2."):
    pytest.skip("needs torchtitan 0.2, whose recipes are TOML files", allow_module_level=True)

RECIPE = """
[metrics]
log_freq = 1
[model]
name = "llama3"
flavor = "debugmodel"
hf_assets_path = "./tests/assets/tokenizer"
[training]
local_batch_size = 8
seq_len = 2048
steps = 10
dataset = "c4_test"
[activation_checkpoint]
mode = "none"
[parallelism]
pipeline_parallel_schedule = "Interleaved1F1B"
"""
LAYOUTS: dict[str, tuple[int, tuple[str, ...]]] = {
    "one rank": (1, ()),
    "fsdp2": (8, ()),
    "full checkpointing": (8, ("--activation_checkpoint.mode", "full")),
    "selected operations": (
        8,
        ("--activation_checkpoint.mode", "selective", "--activation_checkpoint.selective_ac_option", "op"),
    ),
    "tp and sp": (8, ("--parallelism.tensor_parallel_degree", "2")),
    "copies": (8, ("--parallelism.data_parallel_replicate_degree", "8", "--parallelism.data_parallel_shard_degree", "1")),
    "context": (8, ("--parallelism.context_parallel_degree", "2")),
    "pipeline": (8, ("--parallelism.pipeline_parallel_degree", "2")),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the recipe looks for its text and tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer, text = tmp_path / "tests/assets/tokenizer", tmp_path / "tests/assets/c4_test"
    tokenizer.mkdir(parents=True)
    text.mkdir()
    names = ["<|begin_of_text|>", "<|end_of_text|>", "hello", "world"]
    words = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="hello"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.add_special_tokens(names[:2])
    words.save(str(tokenizer / "tokenizer.json"))
    (tokenizer / "tokenizer_config.json").write_text(json.dumps({"bos_token": names[0], "eos_token": names[1]}))
    (text / "data.json").write_text((json.dumps({"text": "hello world " * 3000}) + "\n") * 100)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _traced(layout: str) -> TraceResult:
    ranks, flags = LAYOUTS[layout]
    argv = ("-m", "torchtitan.train", "--job.config_file", "recipe.toml", *flags)
    return trace_script(ScriptRequest(argv=argv, ranks=ranks, launched=True))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("folder")
def test_the_recipe_makes_two_steps(layout: str) -> None:
    result = _traced(layout)
    assert (result.error, result.steps) == ("", 2)
    assert {a.category for a in result.log.allocations} >= {"weights", "gradients", "optimizer"}
