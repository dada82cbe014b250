"""A threaded server that behaves like the hub: resolve with redirects and ranges, listings, gates, limits, cuts and delays."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hub:
    """Files by repository, and how each of its answers misbehaves."""

    def __init__(self):
        self.files: dict[str, dict[str, bytes]] = {}
        self.gated: set[str] = set()
        self.busy = 0
        self.cut: set[str] = set()
        self.slow_s = 0.0
        self.ranges = True
        self.redirect_to: str | None = None
        self.hops = 0
        self.drip = False
        self.requests: list[tuple[str, str | None, str | None]] = []
        self._server = Quiet(("127.0.0.1", 0), type("OfThisHub", (Handler,), {"hub": self}))
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def elsewhere(self) -> str:
        """The same server under another host name, as a CDN is."""
        return f"http://localhost:{self._server.server_port}"

    def add(self, repo: str, files: dict[str, bytes]) -> None:
        self.files[repo] = files

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.hub.requests.append((self.path, self.headers.get("Range"), self.headers.get("Authorization")))
        if self.hub.busy > 0:
            self.hub.busy -= 1
            return self.refuse(429, "", {"Retry-After": "1"})
        if self.path.startswith("/cdn/") and self.hub.hops > 0:
            self.hub.hops -= 1
            return self.refuse(302, "", {"Location": f"{self.hub.redirect_to}{self.path}"})
        if self.path.startswith("/cdn/"):
            return self.serve(*self.path.removeprefix("/cdn/").split("//", 1))
        if self.path.startswith("/api/models/"):
            return self.listing(self.path.removeprefix("/api/models/").partition("/revision/")[0])
        repo, _, rest = self.path.lstrip("/").partition("/resolve/")
        return self.resolve(repo, *rest.split("/", 1))

    def resolve(self, repo, revision, file):
        if repo not in self.hub.files:
            return self.refuse(401, "RepoNotFound")
        if repo in self.hub.gated and self.headers.get("Authorization") != "Bearer good":
            return self.refuse(401, "GatedRepo")
        if revision != "main":
            return self.refuse(404, "RevisionNotFound")
        if file not in self.hub.files[repo]:
            return self.refuse(404, "EntryNotFound")
        if self.hub.redirect_to is None:
            return self.serve(repo, file)
        return self.refuse(302, "", {"Location": f"{self.hub.redirect_to}/cdn/{repo}//{file}"})

    def listing(self, repo):
        if repo not in self.hub.files:
            return self.refuse(401, "RepoNotFound")
        body = json.dumps({"id": repo, "siblings": [{"rfilename": n} for n in self.hub.files[repo]]}).encode()
        return self.send(200, body, {})

    def serve(self, repo, file):
        data = self.hub.files[repo][file]
        asked = self.headers.get("Range")
        if self.hub.slow_s:
            time.sleep(self.hub.slow_s)
        if asked and self.hub.ranges:
            first, last = map(int, asked.removeprefix("bytes=").split("-"))
            body = data[first : last + 1]
            return self.send(
                206, body, {"Content-Range": f"bytes {first}-{first + len(body) - 1}/{len(data)}"}, cut=file in self.hub.cut
            )
        return self.send(200, data, {}, cut=file in self.hub.cut)

    def send(self, status, body, headers, *, cut=False):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body)), "X-Repo-Commit": "c0ffee" * 6}.items():
            self.send_header(name, value)
        self.end_headers()
        for byte in body if self.hub.drip else b"":
            self.wfile.write(bytes([byte]))
            time.sleep(0.05)
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = True

    def refuse(self, status, code, headers=None):
        self.send_response(status)
        for name, value in {**(headers or {}), "X-Error-Code": code, "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()


class Quiet(ThreadingHTTPServer):
    """Says nothing when a client goes away before its answer."""

    daemon_threads = True

    def handle_error(self, request, client_address):
        pass
