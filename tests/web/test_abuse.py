"""Visitors who mean harm: large bodies, slow senders, tricks with paths, crowds, hostile files. Refused or served, never down.

Small versions for CI; ``VRAMCAST_ABUSE=1`` runs them at full size (docs/web.md has the figures).
"""

import gzip
import json
import os
import pickle
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("litestar")
FULL = bool(os.environ.get("VRAMCAST_ABUSE"))
CROWD = 1_000 if FULL else 120
MOST_BYTES = 2**30
CLOSED = 0  # the server had refused, and closed the line before all was sent
QUESTION = "/api/serve?model=Qwen/Qwen2.5-7B-Instruct&gpu=4090"


class Server:
    """A server of its own, and what it and its worker hold."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        line = [sys.executable, "-m", "vramcast", "web", "--port", str(self.port)]
        self.process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
        for _ in range(400):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)

    def open(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=90)

    def ask(self, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=90) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except (urllib.error.URLError, ConnectionError):
            return CLOSED, b""

    def raw(self, text: bytes) -> bytes:
        with self.open() as line:
            line.sendall(text)
            return line.recv(65_536)

    def peak_bytes(self) -> int:
        """The most that the server and its worker have held together."""
        held = 0
        for process in (self.process.pid, *self._children()):
            told = Path(f"/proc/{process}/status").read_text()
            held += int(next(row for row in told.splitlines() if row.startswith("VmHWM")).split()[1]) * 1024
        return held

    def _children(self) -> list[int]:
        told = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        threads = Path(f"/proc/{self.process.pid}/task").iterdir()
        return [int(pid) for thread in threads for pid in (thread / told.name).read_text().split()]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.process.terminate()
    found.process.wait(10)


@pytest.fixture(autouse=True)
def still_there(server: Server) -> Iterator[None]:
    """After each attack the server answers, and neither it nor its worker has held more than 1 GiB."""
    yield
    assert server.ask(QUESTION)[0] == 200
    assert server.peak_bytes() < MOST_BYTES


def test_bodies_that_are_too_large_are_refused(server: Server) -> None:
    for path in ("/api/serve", "/api/explain", "/answer/serve?gpu=4090"):
        status, _ = server.ask(path, b"x" * 10_000_000, **{"content-type": "application/json"})
        assert status in (413, CLOSED), path
    for path in ("/read", "/api/profile", "/paste"):
        assert server.ask(path, b"\1" * (40 * 2**20 if FULL else 34 * 2**20))[0] in (413, CLOSED), path


def test_a_body_that_lies_about_its_length(server: Server) -> None:
    head = b"POST /api/explain HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: "
    assert b" 413 " in server.raw(head + b"99999999999\r\n\r\n{").split(b"\r\n")[0]
    assert b" 400 " in server.raw(head + b"-5\r\n\r\n{").split(b"\r\n")[0]


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/static/..%5capp.py",
     "/%2e%2e/%2e%2e/etc/passwd", "/answer/..%2f..", "/static/page.css%00.js"],
)  # fmt: skip
def test_no_path_leaves_the_folder(server: Server, path: str) -> None:
    answer = server.raw(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
    assert answer.split(b" ")[1] in (b"404", b"400")
    assert b"root:" not in answer
    assert b"litestar" not in answer.lower()


def test_slow_senders_are_closed_and_others_served_meanwhile(server: Server) -> None:
    slow = [server.open() for _ in range(CROWD // 2)]
    try:
        for line in slow:
            line.sendall(b"GET /serve HTTP/1.1\r\nhost: x\r\nx-slow: ")
        begun = time.monotonic()
        assert server.ask(QUESTION)[0] == 200
        assert time.monotonic() - begun < 5
        slow[0].settimeout(20)
        assert slow[0].recv(100) == b"", "a head that never ends is cut off after ten seconds"
    finally:
        for line in slow:
            line.close()


def test_a_crowd_is_served_or_refused(server: Server) -> None:
    lines = [server.open() for _ in range(CROWD)]
    statuses = []
    try:
        for line in lines:
            line.sendall(f"GET {QUESTION} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        for line in lines:
            statuses.append(line.recv(64).split(b" ")[1])
    finally:
        for line in lines:
            line.close()
    assert set(statuses) <= {b"200", b"503"}
    assert statuses.count(b"200") > CROWD // 2


class _Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch /tmp/vramcast-was-here",)


def _hostile() -> dict[str, bytes]:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]", *(f"a{i}: &a{i} [{','.join(f'*a{i - 1}' for _ in range(9))}]" for i in range(1, 12))]
    deep = b'{"model_type":' + b"[" * 100_000
    gguf = b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2**60)
    bomb = gzip.compress(b'{"traceEvents":[' + b" " * (400 * 2**20 if FULL else 40 * 2**20) + b"]}", 9)
    row = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":1},'
    many = gzip.compress(b'{"traceEvents":[' + row * (3_000_000 if FULL else 150_000) + b"{}]}", 1)
    return {
        "code.pickle": pickle.dumps(_Evil()),
        "laughs.yaml": "\n".join(["stage: sft", *lines]).encode(),
        "deep.json": deep,
        "lies.gguf": gguf,
        "bomb.json.gz": bomb,
        "many.json.gz": many,
        "cut.json.gz": many[: len(many) // 2],
        "digits.json": json.dumps(
            {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 10**400}
        ).encode(),
        "letters.txt": b"vllm serve " + b"a" * 200_000 + b" --max-model-len " + b"9" * 200_000,
        "backtracking.log": b"CUDA out of memory. Tried to allocate " + b"1" * 200_000 + b" " * 200_000,
        "nul.yaml": b"model: \0\0\0\nstage: sft\n",
        "sqlite.db": b"SQLite format 3\0" + os.urandom(4096),
    }


def test_hostile_files_are_refused_or_answered(server: Server) -> None:
    trace = Path("/tmp/vramcast-was-here")
    for name, data in _hostile().items():
        begun = time.monotonic()
        status, body = server.ask(f"/read?name={name}&gpu=H100", data)
        assert status in (200, 413), name
        assert b"internal error" not in body, (name, body[:300])
        assert time.monotonic() - begun < 80, name
    assert not trace.exists()


def test_a_job_beyond_its_bounds_ends_alone(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker that is killed in the middle of a job is told to the visitor, and the next job has another."""
    from vramcast.web import worker

    monkeypatch.setattr(worker, "MOST_SECONDS", 0.05)
    own = worker.Worker()
    try:
        with pytest.raises(worker.Refused, match="use the command line"):
            own.ask("plan", task="serve", words={"model": "Qwen/Qwen2.5-7B-Instruct", "gpu": "4090"})
        monkeypatch.setattr(worker, "MOST_SECONDS", 60.0)
        found = own.ask("held", data=b"vllm serve Qwen/Qwen2.5-7B-Instruct", name="", gpu="4090", size=0, lang="en")
        assert "Fits" in found["html"]
    finally:
        own.close()
