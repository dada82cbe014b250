"""The API answers with the objects of --json, and refuses with problem details."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import vramcast
from vramcast.cli.output import as_contract

QWEN = {"model": "Qwen/Qwen2.5-7B-Instruct", "gpu": "RTX 4090", "context": "32k"}


def test_serve_is_the_object_of_json(client: Any) -> None:
    found = client.get("/api/serve", params=QWEN)
    asked = vramcast.serve(QWEN["model"], gpu="RTX 4090", context="32k")
    assert found.status_code == 200
    assert found.json() == json.loads(msgspec.json.encode(as_contract(asked)))


def test_train_is_the_object_of_json(client: Any) -> None:
    words = {"gpu": "H100", "method": "lora", "rank": 16, "seq": "4k", "checkpointing": "full"}
    found = client.get("/api/train", params={"model": "meta-llama/Llama-3.1-8B", **words})
    asked = vramcast.train("meta-llama/Llama-3.1-8B", **words)
    assert found.json()["memory"] == json.loads(msgspec.json.encode(as_contract(asked)))["memory"]


@pytest.mark.parametrize(
    ("address", "status", "field", "said"),
    [
        ("/api/serve?model=Qwen/Qwen2.5-7B-Instruct&gpu=RTX 9999", 400, "gpu", "9999"),
        ("/api/serve?model=Qwen/Qwen2.5-7B-Instruct&gpu=4090&context=1e99", 400, "context", "context"),
        ("/api/serve?model=Qwen/Qwen2.5-7B-Instruct&gpu=4090&context=131072", 400, "context", "ask for at most 32,768"),
        ("/api/serve?model=Qwen/Qwen2.5-7B-Instruct&gpu=4090&contxt=1", 400, None, "did you mean context"),
        ("/api/serve?gpu=4090", 400, None, "no model"),
        ("/api/serve?model=a&model=b", 400, "model", "given twice"),
        ("/api/train?model=meta-llama/Llama-3.1-8B&gpu=H100&rank=x", 400, "rank", "expected a number"),
        ("/api/serve?model=Qwen/Qwen2.5-7B-Instruct&gpu=local", 400, "gpu", "the server's own card"),
        ("/api/gpus?name=local", 400, "gpu", "the server's own card"),
    ],
)
def test_problems_name_the_field(client: Any, address: str, status: int, field: str | None, said: str) -> None:
    found = client.get(address)
    problem = found.json()
    assert (found.status_code, found.headers["content-type"].split(";")[0]) == (status, "application/problem+json")
    assert problem["field"] == field
    assert said in problem["detail"]


def test_a_problem_offers_what_would_do(client: Any) -> None:
    found = client.get("/api/serve", params={**QWEN, "context": "131072"}).json()
    assert found["suggestions"] == ["32768"]


def test_a_config_sent_along_is_answered_without_a_file(client: Any) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096,
        "num_attention_heads": 16, "num_key_value_heads": 4, "num_hidden_layers": 4, "vocab_size": 32000,
        "max_position_embeddings": 8192, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    }  # fmt: skip
    found = client.post("/api/serve", json={"words": {"gpu": "4090"}, "config": config})
    assert found.status_code == 200, found.text
    per_layer = 1024 * 1024 * 2 + 2 * 1024 * 256 + 3 * 1024 * 4096 + 2 * 1024
    assert found.json()["model"]["parameters"] == 4 * per_layer + 2 * 32000 * 1024 + 1024


@pytest.mark.parametrize("body", ["{", "[]", '{"words": 3}', '{"nope": 1}', '{"config": {"model_type": "llama"}}', ""])
def test_a_body_that_is_wrong_is_refused(client: Any, body: str) -> None:
    found = client.post("/api/serve", content=body, headers={"content-type": "application/json"})
    assert 400 <= found.status_code < 500
    assert found.headers["content-type"].startswith("application/problem+json")


def test_a_large_body_is_refused(client: Any) -> None:
    found = client.post("/api/explain", content=b"x" * 3_000_000, headers={"content-type": "application/json"})
    assert found.status_code == 413


def test_explain_reads_a_message(client: Any) -> None:
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of "
        "which 1.00 GiB is free. Of the allocated memory 20.00 GiB is allocated by PyTorch, and 1.50 GiB is reserved by PyTorch "
        "but unallocated."
    )
    found = client.post("/api/explain", json={"text": text}).json()
    assert found["out_of_memory"]["wanted_bytes"] == 2 * 2**30
    assert client.post("/api/explain", json={"text": "hello"}).status_code == 400


def test_an_answer_is_cached_by_its_address(client: Any) -> None:
    first = client.get("/api/serve", params=QWEN)
    again = client.get("/api/serve", params=QWEN, headers={"if-none-match": first.headers["etag"]})
    other = client.get("/api/serve", params={**QWEN, "context": "16k"}, headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content, other.status_code) == (304, b"", 200)


def test_the_document_lists_every_path(client: Any) -> None:
    paths = client.get("/api/docs/openapi.json").json()["paths"]
    assert set(paths) == {
        "/api/serve", "/api/train", "/api/plan", "/api/plan/train", "/api/models", "/api/gpus", "/api/explain", "/api/profile",
    }  # fmt: skip


def test_nothing_foreign_may_run_on_the_page(client: Any) -> None:
    headers = client.get("/").headers
    assert "script-src" not in headers["content-security-policy"]
    assert "default-src 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_a_pasted_command_opens_no_path_of_the_server(client: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret" / "config.json"
    secret.parent.mkdir()
    secret.write_text('{"model_type": "llama", "secret": "hunter2"}')
    found = client.post("/paste", data={"text": f"vllm serve {secret.parent} --max-model-len 4096", "gpu": "4090"})
    assert found.status_code == 200
    assert "hunter2" not in found.text
    assert 'class="problem"' in found.text
