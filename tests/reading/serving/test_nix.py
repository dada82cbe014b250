"""NixOS modules: values as the syntax tells them, services by their options."""

import pytest

from vramcast.errors import QuestionError
from vramcast.reading.nix import Unknown, parse_nix
from vramcast.reading.serving.files import find_launches

MODULE = """
{ config, lib, pkgs, ... }:
let
  port = 8000;
  models.small = { path = "/m/Small-1B-Q4_K_M.gguf"; more = [ "-ngl" "10" ]; };
  llama = lib.getExe' pkgs.llama-cpp "llama-server";
  others = builtins.listToAttrs (map (i: { name = "x"; value = i; }) [ 1 2 ]);
in {
  services.llama-cpp = {
    enable = true; inherit port; model = models.small.path;
    extraFlags = models.small.more ++ [ "--ctx-size" "4096" ];
  };
  services.ollama = { enable = true; loadModels = [ "qwen3:8b" ]; environmentVariables.OLLAMA_NUM_PARALLEL = "2"; };
  services.llama-swap.settings.models."other" = {
    cmd = "${llama} --port \\${PORT} -m /m/Other-3B-Q8_0.gguf -c 2048";
  };
  virtualisation.oci-containers.containers.engine = {
    image = "vllm/vllm-openai:v0.11.0";
    cmd = [ "--model" "org/Model-8B" "--max-model-len" "512" ];
  };
  systemd.services.more.serviceConfig.ExecStart = ''
    ${pkgs.vllm}/bin/vllm serve org/Model-1B --max-num-seqs 4
  '';
} // others
"""


def test_a_modules_services() -> None:
    found = find_launches(MODULE, "server.nix")
    assert found.kind == "Nix module"
    told = {(one.engine, one.model): one for one in found.launches}
    assert told["llama_cpp", "/m/Small-1B-Q4_K_M.gguf"].flags == ("--port", "8000", "-ngl", "10", "--ctx-size", "4096")
    assert told["ollama", "qwen3:8b"].flags == ("--n-parallel", "2")
    assert told["llama_cpp", "/m/Other-3B-Q8_0.gguf"].flags == ("--port", "8080", "-c", "2048")
    assert told["vllm", "org/Model-8B"].version == "0.11.0"
    assert told["vllm", "org/Model-1B"].flags == ("--max-num-seqs", "4")


def test_a_unit_alone() -> None:
    text = '{ systemd.services.a.serviceConfig.ExecStart = "${pkgs.vllm}/bin/vllm serve org/M --max-num-seqs 4"; }'
    assert find_launches(text, "a.nix").launches[0].flags == ("--max-num-seqs", "4")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{ a.b = 1; a.c = [ true null 2.5 ]; }", {"a": {"b": 1, "c": [True, None, 2.5]}}),
        ("let x = { y = 3; }; in x // { z = x.y; }", {"y": 3, "z": 3}),
        ('x: y: lib.mkIf x.on { a = "1\\n${y}"; }', {"a": "1\n${y}"}),
        ("{ a = ''two ''${x} ${'1'}''; # no\n /* no */ }", None),
        ("if true then { a = 1; } else { b = 2; }", {"a": 1}),
        ("let n = 4; in if n == 8 then 1 else 2", 2),
        ("if x then [ 1 ] else [ 1 ]", [1]),
        ("toString (4 * 1024)", "4096"),
        ("[ 1 ] ++ lib.optionals false [ 2 ] ++ lib.optional true 3", [1, 3]),
        ("lib.mkForce 5", 5),
        ("with pkgs; [ 1 ] ++ [ 2 ]", [1, 2]),
        ('"a" + "b"', "ab"),
    ],
)
def test_values(text: str, value: object) -> None:
    found = parse_nix(text, "a.nix")
    assert found == value if value is not None else found["a"].startswith("two ${x}")


def test_what_only_nix_would_tell() -> None:
    assert isinstance(parse_nix("map (x: [ 1 ]) [ 2 ]", "a.nix"), Unknown)


@pytest.mark.parametrize("text", ["[" * 5_000, "{ a = " * 5_000, "(" * 200_000, "1 " * 100_000])
def test_nesting_without_end(text: str) -> None:
    with pytest.raises(QuestionError, match=r"a\.nix is no Nix that can be read here"):
        parse_nix(text, "a.nix")


@pytest.mark.parametrize("text", ["", "{", '"', "''", "${", "{ a = ", "let x = 1;", "]", '{ "a${', "\\", "rec"])
def test_what_ends_early(text: str) -> None:
    assert not find_launches(text, "a.nix").launches


def _server(options: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    text = (
        f'{{ config, lib, ... }}: let ctx = 32768; in {{ services.llama-cpp = {{ model = "/m/A-8B-Q4_K_M.gguf"; {options} }}; }}'
    )
    (launch,) = find_launches(text, "a.nix").launches
    return launch.flags, launch.unread


@pytest.mark.parametrize(
    ("options", "flags", "unread"),
    [
        ('extraFlags = [ "-c" (toString ctx) ];', ("-c", "32768"), ()),
        ('extraFlags = [ "-c" (toString config.my.len) ];', ("-c", "${config_my_len}"), ()),
        ("contextSize = cfg.ctx;", ("--ctx-size", "${cfg_ctx}"), ()),
        ("flashAttention = false;", ("--flash-attn", "off"), ()),
        ('mmproj = "/x.gguf";', (), ("mmproj",)),
        ('extraFlags = [ "-c" "8" ] ++ lib.optionals cfg.big [ "-ngl" "9" ];', ("-c", "8", "-ngl", "9"),
         ("-ngl 9 (counted, though under a condition: cfg.big)",)),
        ("nGpuLayers = lib.mkIf cfg.big 20;", ("--n-gpu-layers", "20"),
         ("--n-gpu-layers 20 (counted, though under a condition: cfg.big)",)),
    ],
)  # fmt: skip
def test_what_is_told_of_a_server(options: str, flags: tuple[str, ...], unread: tuple[str, ...]) -> None:
    assert _server(options) == (flags, unread)


@pytest.mark.parametrize("off", ["= { enable = false;", "= lib.mkIf false { enable = true;"])
def test_a_service_that_is_off_starts_nothing(off: str) -> None:
    text = f'{{ lib, ... }}: {{ services.llama-cpp {off} model = "/m/A-8B-Q4_K_M.gguf"; extraFlags = [ "-c" "8" ]; }}; }}'
    assert find_launches(text, "a.nix").launches == ()
    assert find_launches(text.replace("false", "true"), "a.nix").launches


def test_a_condition_with_two_models_leaves_the_model_open() -> None:
    text = '{ services.llama-cpp = { model = if c.big then "A-32B-Q4_K_M.gguf" else "A-8B-Q4_K_M.gguf"; }; }'
    assert find_launches(text, "a.nix").launches[0].model == "${if_c_big}"
