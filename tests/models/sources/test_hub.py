"""The hub, against a server that behaves like it: what is asked, what is kept, and every way in which it fails."""

import io
import json
import os
import urllib.request
from email.message import Message

import pytest
import small_checkpoint as small
from hub_server import Hub

from vramcast.errors import ConfigError, MissingError, QuestionError, UnsafeFileError
from vramcast.models.quantization import scheme_for, weight_bytes
from vramcast.models.sources import http
from vramcast.models.sources.http import AbsentError, Client
from vramcast.models.sources.hub import choose_gguf, read_hub


@pytest.fixture
def hub(monkeypatch, tmp_path):
    server = Hub()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("VRAMCAST_CACHE", str(tmp_path / "cache"))
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    yield server
    server.close()


def files(tmp_path, *, shards: int = 1) -> dict[str, bytes]:
    small.write_folder(tmp_path / "made", shards=shards)
    return {f.name: f.read_bytes() for f in (tmp_path / "made").iterdir()}


def read(name: str, **options):
    waits = []
    client = Client(token=options.pop("token", None), wait_s=2.0, sleep=waits.append, **options.pop("client", {}))
    return read_hub(name, client=client, **options), waits


@pytest.mark.parametrize("shards", [1, 3])
def test_a_model_is_read_by_its_headers_once(hub, tmp_path, shards):
    hub.add("org/tiny", files(tmp_path, shards=shards))
    model, _ = read("org/tiny")
    assert (model.id, model.layers, model.unmodelled) == ("org/tiny", small.LAYERS, ())
    assert model.loaded_from == f"{hub.url}/org/tiny@c0ffeec0ffee"
    assert weight_bytes(model, scheme_for(model), stored=True) == model.parameters * 2
    asked = len(hub.requests)
    again, _ = read("org/tiny", offline=True)
    assert again == model
    assert len(hub.requests) == asked


def test_only_headers_are_fetched(hub, tmp_path):
    made = files(tmp_path)
    made["model.safetensors"] += bytes(0)
    hub.add("org/tiny", made)
    read("org/tiny")
    weights = [r for r in hub.requests if r[0].endswith("model.safetensors")]
    assert [r[1] for r in weights] == ["bytes=0-65535"]


def test_a_token_stays_with_its_host(hub, tmp_path):
    hub.add("org/tiny", files(tmp_path))
    hub.gated.add("org/tiny")
    hub.redirect_to = hub.elsewhere
    read("org/tiny", token="good")
    assert {r[2] for r in hub.requests if not r[0].startswith("/cdn/")} == {"Bearer good"}
    assert {r[2] for r in hub.requests if r[0].startswith("/cdn/")} == {None}


def test_a_token_stays_with_its_host_after_any_number_of_redirects(hub, tmp_path):
    hub.add("org/tiny", files(tmp_path))
    hub.redirect_to, hub.hops = hub.elsewhere, 3
    read("org/tiny", token="good")
    assert hub.hops == 0
    assert {r[2] for r in hub.requests if r[0].startswith("/cdn/")} == {None}


@pytest.mark.parametrize(
    ("home", "target", "kept"),
    [
        ("https://hub.co/a", "https://hub.co/b", True),
        ("https://hub.co/a", "https://HUB.co/b", True),
        ("https://hub.co/a", "http://hub.co/b", False),
        ("https://hub.co/a", "https://hub.co:8443/b", False),
        ("https://hub.co/a", "https://hub.co.evil.org/b", False),
        ("https://hub.co/a", "https://hub.co@evil.org/b", False),
    ],
)
def test_a_token_goes_to_the_scheme_host_and_port_it_was_given_for(home, target, kept):
    handler = http._Redirects("secret", http._home(home))
    last_hop = urllib.request.Request(target)
    following = handler.redirect_request(last_hop, io.BytesIO(), 302, "Found", Message(), target)
    assert (following.get_header("Authorization") == "Bearer secret") is kept


def test_a_server_that_drips_is_given_up_in_time(hub, tmp_path):
    hub.add("org/tiny", files(tmp_path))
    hub.drip = True
    with pytest.raises(MissingError, match="is too slow"):
        read("org/tiny", client={"total_s": 0.3, "attempts": 1})


@pytest.mark.parametrize("endpoint", ["foo", "http://[::", "file:///etc"])
def test_an_endpoint_that_is_no_web_address_is_a_question_error(endpoint, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(QuestionError, match="is not a web address"):
        read("org/tiny")


def test_a_password_in_the_endpoint_is_not_printed(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://user:hunter2@127.0.0.1:9")
    with pytest.raises(MissingError) as error:
        read("org/tiny", client={"attempts": 1})
    assert "hunter2" not in str(error.value)


def test_a_token_of_strange_characters_is_a_question_error(hub):
    with pytest.raises(QuestionError, match="characters that no token has"):
        read("org/tiny", token="hf_\u20ac")


def test_a_token_follows_within_its_host(hub, tmp_path):
    hub.add("org/tiny", files(tmp_path))
    hub.redirect_to = hub.url
    read("org/tiny", token="good")
    assert {r[2] for r in hub.requests} == {"Bearer good"}


@pytest.mark.parametrize("token", [None, "wrong"])
def test_a_gated_model_says_how_to_get_access(hub, tmp_path, token):
    hub.add("org/tiny", files(tmp_path))
    hub.gated.add("org/tiny")
    with pytest.raises(MissingError, match=r"/org/tiny is gated: accept its terms on that page, then set HF_TOKEN") as error:
        read("org/tiny", token=token)
    assert error.value.exit_code == 3


def test_a_repository_that_is_not_there(hub):
    with pytest.raises(AbsentError, match="org/nothing does not exist, or is private to others") as error:
        read("org/nothing")
    assert (error.value.exit_code, error.value.code) == (2, "RepoNotFound")


def test_a_revision_that_is_not_there(hub, tmp_path):
    hub.add("org/tiny", files(tmp_path))
    with pytest.raises(AbsentError, match="/org/tiny has no revision 'v9'"):
        read("org/tiny", revision="v9")


def test_a_busy_hub_is_asked_again_after_the_wait_it_names(hub, tmp_path):
    hub.add("org/tiny", files(tmp_path))
    hub.busy = 2
    model, waits = read("org/tiny")
    assert (model.layers, waits) == (small.LAYERS, [1.0, 1.0])


def test_a_hub_that_stays_busy(hub, tmp_path):
    hub.add("org/tiny", files(tmp_path))
    hub.busy = 99
    with pytest.raises(MissingError, match="answered 429 Too Many Requests: try again later"):
        read("org/tiny")
    assert len(hub.requests) == 4


def test_an_answer_cut_off(hub, tmp_path):
    hub.add("org/tiny", files(tmp_path))
    hub.cut.add("config.json")
    with pytest.raises(MissingError, match=r"config\.json was cut off after \d+ of \d+ bytes; try again|IncompleteRead"):
        read("org/tiny")


def test_a_hub_too_slow_to_answer(hub, tmp_path):
    hub.add("org/tiny", files(tmp_path))
    hub.slow_s = 0.5
    with pytest.raises(MissingError, match=r"cannot be reached \(timed out\): use a catalogued id, a local folder"):
        read_hub("org/tiny", client=Client(wait_s=0.1, attempts=1))


def test_an_answer_that_takes_too_long(hub, tmp_path):
    hub.add("org/tiny", files(tmp_path))
    with pytest.raises(MissingError, match=r"is too slow: [\d,]+ bytes in 0 s; try again"):
        read("org/tiny", client={"total_s": 0.0, "attempts": 1})


def test_a_hub_that_is_not_there(hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(MissingError, match=r"127\.0\.0\.1:9 cannot be reached .*set HF_ENDPOINT to a mirror") as error:
        read("org/tiny")
    assert error.value.exit_code == 3


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_never_asks(hub, tmp_path, monkeypatch, variable):
    hub.add("org/tiny", files(tmp_path))
    monkeypatch.setenv(variable, "1")
    with pytest.raises(MissingError, match="org/tiny has not been fetched before and the hub is offline"):
        read("org/tiny")
    assert hub.requests == []


def test_offline_answers_from_the_hubs_own_cache(hub, tmp_path, monkeypatch):
    commit = "c0ffee" * 6 + "abcd"
    repo = tmp_path / "hf" / "hub" / "models--org--tiny"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    (repo / "snapshots" / commit).mkdir(parents=True)
    small.write_folder(repo / "snapshots" / commit)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model, _ = read("org/tiny")
    assert (model.id, len(model.stored)) == ("org/tiny", len(small.tensors()))


def test_a_mirror_without_ranges(hub, tmp_path):
    hub.add("org/tiny", files(tmp_path))
    hub.ranges = False
    assert read("org/tiny")[0].stored


def test_an_older_scheme_beside_the_config(hub, tmp_path):
    scheme = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    hub.add("org/tiny", {"config.json": files(tmp_path)["config.json"], "hf_quant_config.json": json.dumps(scheme).encode()})
    assert scheme_for(read("org/tiny")[0]).name == "modelopt-fp8-tensor"


def test_an_older_scheme_is_asked_for_where_the_id_speaks_of_few_bits(hub, tmp_path):
    said = json.dumps({"bits": 4, "group_size": 128, "desc_act": False}).encode()
    for name in ("org/tiny-GPTQ", "org/tiny"):
        hub.add(name, {"config.json": files(tmp_path)["config.json"], "quantize_config.json": said})
    assert scheme_for(read("org/tiny-GPTQ")[0]).name == "gptq-int4-g128"
    assert scheme_for(read("org/tiny")[0]).name == "bfloat16"


@pytest.mark.parametrize(
    ("made", "error", "text"),
    [
        ({"config.json": b"{" * 10}, ConfigError, "config.json is not JSON"),
        ({"config.json": b"{}" + b" " * 5_000_000}, UnsafeFileError, r"config.json is larger than 4\.0 MiB"),
        ({"config.json": b"<html>sign in</html>"}, ConfigError, "this is a web page, not the file"),
        ({"README.md": b"x"}, QuestionError, "holds neither a config.json nor GGUF files"),
    ],
)
def test_files_that_cannot_be(hub, made, error, text):
    hub.add("org/tiny", made)
    with pytest.raises(error, match=text):
        read("org/tiny")


def test_an_index_on_the_hub_cannot_name_other_places(hub, tmp_path):
    made = files(tmp_path, shards=2)
    made["model.safetensors.index.json"] = json.dumps({"weight_map": {"a": "../../other/resolve/main/x"}}).encode()
    hub.add("org/tiny", made)
    with pytest.raises(UnsafeFileError, match="which is not a plain name inside its folder"):
        read("org/tiny")


def test_a_header_that_lies_on_the_hub(hub, tmp_path):
    made = files(tmp_path)
    made["model.safetensors"] = made["model.safetensors"][:-4]
    hub.add("org/tiny", made)
    with pytest.raises(UnsafeFileError, match="the file is truncated"):
        read("org/tiny")
    assert not list((tmp_path / "cache").rglob("*.msgpack"))


def test_a_gguf_repository_is_read_by_its_head(hub):
    data = small.gguf_bytes()
    hub.add("org/tiny-GGUF", {"tiny-Q8_0.gguf": data, "tiny-Q4_K_M.gguf": data, "mmproj-tiny-F16.gguf": b""})
    model, _ = read("org/tiny-GGUF:q8_0")
    assert (model.id, model.layers) == ("org/tiny-GGUF:q8_0", small.LAYERS)
    assert model.loaded_from.endswith("tiny-Q8_0.gguf")
    assert read("org/tiny-GGUF")[0].loaded_from.endswith("tiny-Q4_K_M.gguf")
    assert all(r[1] for r in hub.requests if r[0].endswith(".gguf"))


PARTS = ["x/a-Q8_0-00001-of-00002.gguf", "x/a-Q8_0-00002-of-00002.gguf"]


@pytest.mark.parametrize(
    ("files", "kind", "expected"),
    [
        (["a-Q4_K_S.gguf", "a-Q4_K_M.gguf"], "", ["a-Q4_K_M.gguf"]),
        (["a-Q4_0.gguf", "a-Q8_0.gguf"], "", ["a-Q8_0.gguf"]),
        (["a-IQ4_K.gguf"], "", ["a-IQ4_K.gguf"]),
        (["b-Q4_0.gguf", *PARTS], "q8_0", PARTS),
    ],
)
def test_the_gguf_file_that_is_meant(files, kind, expected):
    assert choose_gguf(files, kind, "org/x") == expected


def test_a_gguf_type_that_is_not_there():
    with pytest.raises(QuestionError, match=r"no single GGUF file of type Q5_K_M: it holds a-Q4_0\.gguf; write org/x:TYPE"):
        choose_gguf(["a-Q4_0.gguf"], "Q5_K_M", "org/x")


@pytest.mark.parametrize("name", ["../x", "a/b/c", "a b", "org/..", "", "a--b/c", "-x/y"])
def test_what_is_no_id_is_not_asked_for(hub, name):
    with pytest.raises(QuestionError, match="is not a hub id: expected organisation/name"):
        read(name)
    assert hub.requests == []


def test_what_was_kept_long_ago_is_asked_for_again(hub, tmp_path):
    hub.add("org/tiny", files(tmp_path))
    first, _ = read("org/tiny")
    for file in (tmp_path / "cache").rglob("*.msgpack"):
        os.utime(file, (0, 0))
    asked = len(hub.requests)
    assert read("org/tiny")[0] == first
    assert len(hub.requests) > asked


def test_what_was_kept_long_ago_is_better_than_nothing(hub, tmp_path):
    hub.add("org/tiny", files(tmp_path))
    first, _ = read("org/tiny")
    for file in (tmp_path / "cache").rglob("*.msgpack"):
        os.utime(file, (0, 0))
    hub.busy = 99
    assert read("org/tiny")[0] == first


def test_a_damaged_cache_is_fetched_again(hub, tmp_path):
    hub.add("org/tiny", files(tmp_path))
    read("org/tiny")
    for file in (tmp_path / "cache").rglob("*.msgpack"):
        file.write_bytes(b"\xc1 not what was written")
    assert read("org/tiny")[0].stored
