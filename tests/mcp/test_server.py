"""The server for assistants, asked by the SDK's own client: typed results, bounded words, nothing of this machine in reach."""

import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.types import CallToolResult

import vramcast
from vramcast.cli.mcp import helps
from vramcast.mcp.results import ServingChoice, ServingPlanned, TrainingChoice, TrainingPlanned, schema_of
from vramcast.mcp.server import build_server

SOURCE = Path(vramcast.__file__).parents[1]
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which "
    "1.01 GiB is free. Of the allocated memory 21.00 GiB is allocated by PyTorch, and 500.00 MiB is reserved by PyTorch but "
    "unallocated."
)
AXOLOTL = (
    "base_model: meta-llama/Llama-3.1-8B\nadapter: lora\nlora_r: 16\nsequence_len: 4096\nmicro_batch_size: 2\ndatasets: []\n"
)


def with_client(asked: Callable[[Client], Awaitable[Any]]) -> Any:
    """What a client of the server in this process is told; the client holds every object against its schema."""

    async def run() -> Any:
        async with Client(build_server(helps()), mode="legacy") as client:
            return await asked(client)

    return anyio.run(run)


def call(name: str, /, **words: Any) -> CallToolResult:
    return with_client(lambda client: client.call_tool(name, words))


def refused(name: str, /, **words: Any) -> str:
    found = call(name, **words)
    assert found.is_error
    assert found.structured_content is None
    return found.content[0].text


def test_five_tools_with_schemas_that_only_read() -> None:
    tools = with_client(lambda client: client.list_tools()).tools
    assert [tool.name for tool in tools] == ["serve", "train", "plan", "explain", "read"]
    for tool in tools:
        assert tool.annotations.read_only_hint and tool.annotations.open_world_hint is False
        assert tool.output_schema["type"] == "object" and tool.input_schema["additionalProperties"] is False
        told = tool.input_schema["properties"]
        assert all(len(word["description"]) > 5 for word in told.values())


def test_words_that_read_files_are_no_words_of_a_tool() -> None:
    tools = {tool.name: tool for tool in with_client(lambda client: client.list_tools()).tools}
    for name in ("serve", "train", "plan"):
        assert not {"workload", "profile", "settings", "files"} & set(tools[name].input_schema["properties"])


def test_serve_gives_the_object_of_json_and_the_page() -> None:
    found = call("serve", model="Qwen/Qwen2.5-7B-Instruct", gpu="RTX 4090", context="16k", flags="--max-num-seqs 64")
    own = vramcast.serve("Qwen/Qwen2.5-7B-Instruct", gpu="RTX 4090", context="16k", flags=["--max-num-seqs", "64"])
    assert found.structured_content == json.loads(msgspec.json.encode(own.to_dict()))
    assert found.content[0].text == str(own)


def test_train_takes_lists_and_a_config() -> None:
    own = call("train", model="meta-llama/Llama-3.1-8B", gpu="H100", method="lora", rank=8, targets=["q_proj", "v_proj"])
    assert own.structured_content["workload"]["adapter"]["targets"] == ["q_proj", "v_proj"]
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    }  # fmt: skip
    sent = call("train", config=config, gpu="4090").structured_content
    assert sent["model"]["layers"] == 16
    assert sent["fit"]["verdict"] in ("fits", "tight", "no")


def test_plan_of_a_server_and_of_a_training() -> None:
    serving = call("plan", task="serve", model="Qwen/Qwen3-32B", gpu=["H100x2@2.5", "L40Sx2"], users=4, engine="vllm")
    body = serving.structured_content["plan"]
    assert body["ranked"][0]["command"].startswith("vllm serve ")
    assert body["wanted"]["users"] == 4
    training = call("plan", task="train", model="Qwen/Qwen2.5-7B", gpu="H100x8", seq=4096, framework="torchtitan")
    best = training.structured_content["plan"]["ranked"][0]
    assert best["framework"] == "torchtitan" and best["step_s"] > 0


@pytest.mark.parametrize(
    ("task", "words", "kind", "choice"),
    [
        ("serve", {"gpu": "H100x2", "users": 4, "engine": "vllm"}, ServingPlanned, ServingChoice),
        ("train", {"gpu": "H100x8", "seq": 4096, "framework": "torchtitan"}, TrainingPlanned, TrainingChoice),
    ],
)
def test_a_plan_has_the_fields_of_its_types_and_no_other(task: str, words: dict[str, Any], kind: type, choice: type) -> None:
    body = call("plan", task=task, model="Qwen/Qwen2.5-7B", **words).structured_content
    assert set(body) == set(kind.__struct_fields__)
    assert set(body["plan"]) == set(kind.__annotations__["plan"].__struct_fields__)
    for found in (*body["plan"]["ranked"], *body["plan"]["front"]):
        assert set(choice.__struct_fields__) - {"lost"} <= set(found) <= set(choice.__struct_fields__)


def test_a_schema_refuses_an_object_that_lacks_a_field() -> None:
    import jsonschema

    body = call("plan", task="serve", model="Qwen/Qwen2.5-7B", gpu="H100", users=1, engine="vllm").structured_content
    schema = schema_of(ServingPlanned, TrainingPlanned)
    jsonschema.validate(body, schema)
    del body["plan"]["ranked"][0]["ttft_s"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(body, schema)


def test_explain_reads_the_message_and_asks_again() -> None:
    found = call("explain", text=OOM).structured_content
    assert found["out_of_memory"]["wanted_bytes"] == 2 * 2**30
    assert "2.00 GiB" in call("explain", text=OOM).content[0].text


def test_read_answers_what_the_text_is() -> None:
    line = call("read", text="vllm serve Qwen/Qwen3-8B --max-model-len 16384", gpu="L4").structured_content
    assert line["kind"] == "a command line"
    assert line["parts"][0]["answer"]["workload"]["context"] == 16384
    two = call("read", text="services:\n  a:\n    image: vllm/vllm-openai\n    command: --model Qwen/Qwen3-8B\n  b:\n"
               "    image: vllm/vllm-openai\n    command: --model Qwen/Qwen3-4B\n", name="docker-compose.yml")  # fmt: skip
    assert [part["name"] for part in two.structured_content["parts"]] == ["a", "b"]
    training = call("read", text=AXOLOTL, gpu="H100").structured_content
    assert training["parts"][0]["answer"]["workload"]["framework"] == "axolotl"
    log = call("read", text=f"INFO: starting\n{OOM}", gpu="RTX 4090").structured_content
    assert log["explained"]["out_of_memory"]["wanted_bytes"] == 2 * 2**30


def test_a_text_that_names_files_does_not_open_them(tmp_path: Path) -> None:
    secret = tmp_path / "ds.json"
    secret.write_text('{"zero_optimization": {"stage": 3}}')
    text = f"deepspeed train.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1 --deepspeed {secret}"
    part = call("read", text=text, gpu="H100").structured_content["parts"][0]
    assert part["answer"] is None
    assert "cannot be read" in part["error"]


@pytest.mark.parametrize(
    ("name", "words", "because"),
    [
        ("serve", {"model": "/etc/passwd", "gpu": "4090"}, "files of the server are not read"),
        ("serve", {"model": "Qwen/Qwen3-8B", "gpu": "local"}, "the server's own card"),
        ("serve", {"model": "Qwen/Qwen3-8B", "workload": "log.csv"}, "unknown word"),
        ("serve", {"model": "x" * 500}, "longer than any value"),
        ("serve", {"model": "Qwen/Qwen3-8B", "context": {"a": 1}}, "expected a text or a number"),
        ("train", {"model": "Qwen/Qwen3-8B", "config": "config.json"}, "expected the object"),
        ("plan", {"task": "serve", "model": "Qwen/Qwen3-8B", "gpu": ["local"]}, "the server's own card"),
        ("plan", {"task": "serve", "model": "Qwen/Qwen3-8B", "gpu": ["H100"] * 9}, "at most 8"),
        ("plan", {"task": "serve", "model": "Qwen/Qwen3-8B", "gpu": "H100", "most_gpus": 1000}, "at most 256"),
        ("plan", {"task": "train", "model": "Qwen/Qwen3-8B", "gpu": "H100x1024"}, "at most 256"),
        ("plan", {"task": "serve", "model": "Qwen/Qwen3-8B", "users": [1, 2]}, "expected a text or a number"),
        ("plan", {"task": "sell", "model": "Qwen/Qwen3-8B"}, "unknown task"),
        ("plan", {"task": "train", "model": "Qwen/Qwen3-8B", "gpu": "H100", "rank": "many"}, "rank"),
        ("explain", {"text": " "}, "expected the text itself"),
        ("explain", {"text": "all is well"}, "nothing that can be explained"),
        ("explain", {"text": "x" * 1_000_001}, "are enough"),
        ("read", {"text": "hello there"}, "nothing known here"),
        ("read", {"text": OOM, "gpu": "local"}, "name the card"),
        ("read", {"text": OOM, "path": "/etc/passwd"}, "unknown word"),
        ("guess", {}, "unknown tool"),
    ],
)
def test_a_question_that_cannot_be_is_refused_with_what_to_do(name: str, words: dict[str, Any], because: str) -> None:
    assert because in refused(name, **words)


def test_the_command_speaks_the_protocol_on_its_own_pipes() -> None:
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "vramcast", "mcp"], env={**os.environ, "PYTHONPATH": str(SOURCE)}
    )

    async def run() -> Any:
        async with Client(stdio_client(server)) as client:
            return await client.call_tool("serve", {"model": "nobody/has-this-model", "gpu": "4090"}), await client.list_tools()

    missing, tools = anyio.run(run)
    assert len(tools.tools) == 5
    assert missing.is_error and "HF_HUB_OFFLINE" in missing.content[0].text  # no network unless --hub


def test_without_the_extra_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from vramcast.cli import run

    monkeypatch.delitem(sys.modules, "vramcast.mcp.server", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel", None)
    assert run(["mcp"]) == 3
    assert "pip install 'vramcast[mcp]'" in capsys.readouterr().err
