"""Servers that are alike: copies on cards of their own are told as such, those on one card share it."""

from pathlib import Path

import pytest

from vramcast.asking.serving import serving_question
from vramcast.reading.serving.commands import cards_of, devices_of
from vramcast.reading.serving.launch import visible_devices

LINE = "vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.45 --max-model-len 4096 --port {}"


def _compose(*cards: str) -> str:
    service = """
  s{0}:
    image: vllm/vllm-openai:v0.11.0
    command: --model Qwen/Qwen3-8B --gpu-memory-utilization 0.45 --max-model-len 4096 --port 800{0}
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              {1}
              capabilities: [gpu]
"""
    return "services:" + "".join(service.format(place, card) for place, card in enumerate(cards))


def _lines(*before: str) -> str:
    shown = (words.replace("=", "_VISIBLE_DEVICES=") for words in before)
    return "\n".join(f"{words} {LINE.format(8000 + place)} &".strip() for place, words in enumerate(shown))


POD = """apiVersion: apps/v1
kind: Deployment
metadata: {{name: s{0}}}
spec:
  template:
    spec:
      containers:
        - image: vllm/vllm-openai:v0.11.0
          args: [--model, Qwen/Qwen3-8B, --max-model-len, "4096"]
          env: [{{name: CUDA_VISIBLE_DEVICES, value: "0"}}]
          resources: {{limits: {{nvidia.com/gpu: 1}}}}
"""


@pytest.mark.parametrize(
    ("file", "text", "copies", "said"),
    [
        ("run.sh", _lines("CUDA=0", "CUDA=1"), 2, ""),
        ("run.sh", _lines("CUDA=0", "CUDA=0"), 1, "1 more like this on the same cards (0): together 70."),
        ("run.sh", _lines("CUDA=1", "CUDA=1", "CUDA=0"), 2, "1 more like this"),
        ("run.sh", _lines("", ""), 2, "starts 2 like this and does not say which card each takes"),
        ("run.sh", _lines("NVIDIA=2 CUDA=0", "NVIDIA=3 CUDA=0"), 2, ""),
        ("compose.yml", _compose('device_ids: ["0"]', 'device_ids: ["1"]'), 2, ""),
        ("compose.yml", _compose('device_ids: ["1"]', 'device_ids: ["1"]'), 1, "1 more like this on the same cards (1)"),
        ("compose.yml", _compose("count: 1", "count: 1"), 1, "1 more like this on the same cards (0)"),
        ("pods.yaml", "---\n".join(POD.format(place) for place in (1, 2)), 2, ""),
    ],
)  # fmt: skip
def test_copies_and_those_that_share(tmp_path: Path, file: str, text: str, copies: int, said: str) -> None:
    (tmp_path / file).write_text(text)
    asked = serving_question(None, files=[str(tmp_path / file)], gpu="H100 SXM5 80GB")
    assert [a.value for a in asked.assumed if a.name == "replicas"] == ([copies] if copies > 1 else [])
    told = [u.what for u in asked.unmodelled if "like this" in u.what]
    assert len(told) == bool(said)
    assert not said or said in told[0]


def test_what_shares_a_card_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(_lines("CUDA=0", "CUDA=0"))
    asked = serving_question(None, files=[str(tmp_path / "run.sh")], gpu="H100 SXM5 80GB")
    bounds = [u.bound_bytes for u in asked.unmodelled if "same cards" in u.what]
    assert bounds[0] is not None
    assert 35 * 2**30 < bounds[0] < 36 * 2**30


@pytest.mark.parametrize(
    ("given", "inside", "seen"),
    [
        ("GPU-a,GPU-b", "GPU-a", ("GPU-a",)),  # an id stays an id
        ("0,1,2,3", "GPU-x", ("GPU-x",)),
        ("4,5", "1", ("5",)),
        ("4,5", "4", ("4",)),  # no fifth card inside: the number as it is typed
        ("all", "2,3", ("2", "3")),
    ],
)
def test_a_program_sees_the_cards_that_it_names(given: str, inside: str, seen: tuple[str, ...]) -> None:
    assert visible_devices({"NVIDIA_VISIBLE_DEVICES": given, "CUDA_VISIBLE_DEVICES": inside}) == seen


@pytest.mark.parametrize("text", ['"device=0,1"', "'\"device=0,1\",capabilities=utility'"])
def test_what_a_container_may_do_is_no_card(text: str) -> None:
    assert (cards_of(text), devices_of(text)) == (2, ("0", "1"))
