"""Compiled layers as the tracer runs them against torch.compile itself: the same bytes wait for backward, kind by kind."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SMALL = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 1, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 128}  # fmt: skip
KINDS = ["llama", "qwen3", "phi3", "olmo2", "starcoder2"]


def _built(kind: str) -> Any:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **SMALL, pad_token_id=0, attn_implementation="sdpa", dtype=torch.bfloat16)
    return transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16).train()


def _saved(model: Any) -> int:
    """Bytes of storages that autograd saves in a forward pass, weights left out."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}
    alive: list[Any] = []

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    ids = torch.arange(32).reshape(1, 32)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(input_ids=ids, use_cache=False)
    return sum(kept.values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_layer_saves_what_torch_compile_saves(kind: str) -> None:
    from vramcast.tracing.execution.compiled import compile_layers
    from vramcast.tracing.execution.ranks.data_parallel import layers_of

    session: Any = SimpleNamespace(unrecorded=nullcontext)
    ours, theirs, eager = _built(kind), _built(kind), _built(kind)
    compile_layers(ours, session)
    torch._dynamo.reset()
    for layer in layers_of(theirs):
        layer.compile(backend="aot_eager_decomp_partition", fullgraph=True)
    for model in (ours, theirs):
        model(input_ids=torch.arange(32).reshape(1, 32), use_cache=False)  # compiles
    assert _saved(ours) == _saved(theirs) <= _saved(eager)
