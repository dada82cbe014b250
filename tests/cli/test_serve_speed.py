"""``serve --prompt --output``: the speed block, its explanation, its limits, and words that cannot be."""

import json

import pytest
from click.testing import CliRunner

from vramcast.cli import root

MODEL = ["Qwen/Qwen3-14B", "--gpu", "H100", "--context", "8192"]


def _run(*more: str):
    return CliRunner().invoke(root, ["serve", *MODEL, *more], standalone_mode=False)


def test_the_speed_block_of_the_contract() -> None:
    speed = json.loads(_run("--prompt", "1024", "--output", "128", "--concurrency", "8", "--json").output)["speed"]
    assert {"ttft_s", "tpot_s", "tokens_per_s", "tokens_per_s_per_gpu", "bound", "intervals", "terms"} <= speed.keys()
    assert [term["name"] for term in speed["terms"]] == ["ttft", "tpot"]
    assert sum(part["seconds"] for part in speed["terms"][1]["terms"]) == pytest.approx(speed["tpot_s"])
    assert speed["tokens_per_s"] == pytest.approx(speed["requests_per_s"] * 128)


def test_nothing_is_said_of_speed_unasked() -> None:
    assert json.loads(_run("--json").output)["speed"] == {}


def test_a_rate_no_card_can_serve_is_said_with_the_largest() -> None:
    speed = json.loads(_run("--prompt", "4096", "--output", "512", "--rate", "900", "--json").output)["speed"]
    assert "the largest rate is" in speed["warning"]
    assert speed["largest_rate_per_s"] < 900


def test_a_service_level_gives_goodput_and_the_largest_rate() -> None:
    speed = json.loads(
        _run("--prompt", "1024", "--output", "64", "--rate", "2", "--slo", "ttft=200ms,tpot=20ms", "--json").output
    )["speed"]
    assert speed["within_slo"] > 0.9
    assert 2 < speed["largest_rate_within_slo_per_s"] < speed["largest_rate_per_s"]
    assert speed["percentiles"]["ttft_s"]["p50"] <= speed["percentiles"]["ttft_s"]["p99"]


@pytest.mark.parametrize("term", ["ttft", "tpot", "gate_up"])
def test_a_time_opens_to_its_formula(term: str) -> None:
    page = _run("--prompt", "1024", "--output", "128", "--explain", term).output
    assert page.startswith(term)
    assert "law gemm" in page


def test_a_file_of_requests_is_replayed(tmp_path) -> None:
    file = tmp_path / "requests.csv"
    file.write_text("arrival_s,prompt,output\n" + "\n".join(f"{i / 4},800,{20 + i % 30}" for i in range(200)))
    speed = json.loads(_run("--prompt", "800", "--output", "35", "--workload", str(file), "--json").output)["speed"]
    assert speed["simulated_requests"] == 200


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rate", "fast"], "--rate is 'fast': expected a number"),
        (["--rate", "-3"], "rate is -3.0: expected a number above 0"),
        (["--rate", "nan"], "rate is nan: expected a number above 0"),
        (["--prompt", "9000"], "longer than the context of 8,192"),
        (["--prompt", "10", "--slo", "latency=1s"], "expected ttft=TIME and tpot=TIME"),
        (["--prompt", "10", "--slo", "ttft=fast"], "is no time"),
        (["--prompt", "10", "--link", "carrier-pigeon"], "link"),
        (["--prompt", "10", "--cached", "lots"], "expected a share"),
        (["--prompt", "10", "--length-spread", "wide"], "expected a share"),
        (["--prompt", "10", "--length-spread", "2"], "expected a share from 0 to 1"),
        (["--prompt", "10", "--workload", "/no/such/file"], "no file"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words: list[str], said: str) -> None:
    result = _run(*words)
    assert said in str(result.exception)


def test_the_curve_rises_in_throughput() -> None:
    points = json.loads(_run("--prompt", "512", "--output", "128", "--curve", "--json").output)["curve"]
    assert [p["concurrency"] for p in points][:4] == [1, 2, 4, 8]
    assert points[4]["tokens_per_s"] > 3 * points[0]["tokens_per_s"]
