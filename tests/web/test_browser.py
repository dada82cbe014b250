"""The page in a real browser: it follows the hand, keeps the address, speaks both languages, and axe finds nothing wrong."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine: apt install chromium")
ANSWERED = '#answer[aria-busy="false"]'


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "vramcast", "web", "--port", str(port)], stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    with _page(browser) as found:
        yield found


class _page:
    """A page that fails the test for anything on its console."""

    def __init__(self, browser: Any, *, width: int = 1280, scheme: str = "light", script: bool = True) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script
        )
        self.said: list[str] = []

    def __enter__(self) -> Any:
        found = self.context.new_page()
        found.on("console", lambda message: self.said.append(message.text))
        found.on("pageerror", lambda error: self.said.append(str(error)))
        return found

    def __exit__(self, kind: object, *_: object) -> None:
        self.context.close()
        if kind is None:
            assert self.said == []


def test_a_first_visitor_has_the_answer_in_three_interactions(page: Any, address: str) -> None:
    page.goto(address)
    page.fill("#model", "qwen2.5 7b")
    page.fill("#gpu", "4090")
    page.fill("#context", "32k")
    page.wait_for_url("**context=32k*")
    assert page.inner_text("h2").startswith("Fits")
    assert "Qwen/Qwen2.5-7B" in page.inner_text("#answer")


def test_the_answer_follows_the_slider(page: Any, address: str) -> None:
    page.goto(f"{address}/serve?model=Qwen/Qwen2.5-7B-Instruct&gpu=RTX 3060&quant=awq&context=1024")
    before = page.inner_text("tfoot")
    page.focus('input[type="range"][data-for="context"]')
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.wait_for_url("**context=16384*")
    assert page.input_value("#context") == "16384"
    page.wait_for_selector(ANSWERED)
    assert page.inner_text("tfoot") != before


def test_the_field_that_is_wrong_is_marked_and_mended(page: Any, address: str) -> None:
    page.goto(f"{address}/serve?model=Qwen/Qwen2.5-7B-Instruct&gpu=4090")
    page.fill("#context", "131072")
    page.wait_for_selector('#context[aria-invalid="true"]')
    page.click(".problem .button")
    page.wait_for_selector("h2 .verdict.fits")
    assert page.input_value("#context") == "32768"
    assert page.query_selector("[aria-invalid]") is None


def test_advice_applies_itself_and_back_takes_it_back(page: Any, address: str) -> None:
    page.goto(f"{address}/serve?model=Qwen/Qwen2.5-14B-Instruct&gpu=4090&context=8192")
    assert page.inner_text("h2").startswith("Does not fit")
    page.click(".advice .button >> nth=0")
    page.wait_for_selector("h2 .verdict.fits")
    page.go_back()
    page.wait_for_selector("h2 .verdict.no")


def test_the_map_opens_in_place(page: Any, address: str) -> None:
    page.goto(f"{address}/serve?model=Qwen/Qwen2.5-7B-Instruct&gpu=4090")
    page.click("details.map summary")
    page.wait_for_selector(".heat .cell")
    assert len(page.query_selector_all(".heat .cell")) == 28


def test_without_scripts_the_form_asks(browser: Any, address: str) -> None:
    with _page(browser, script=False) as page:
        page.goto(address)
        page.fill("#gpu", "A100 80GB")
        page.click('button[type="submit"]')
        assert "A100" in page.inner_text("#answer")


LOOKS = [(width, scheme, code) for width in (360, 1280) for scheme in ("light", "dark") for code in ("en", "zh")]
USUAL = [(360, "dark", "zh"), (1280, "light", "en")]  # VRAMCAST_ALL_LOOKS=1 runs all eight: 25 s each on a busy machine


@pytest.mark.parametrize(("width", "scheme", "code"), LOOKS if os.environ.get("VRAMCAST_ALL_LOOKS") else USUAL)
def test_axe_finds_nothing_wrong(browser: Any, address: str, width: int, scheme: str, code: str) -> None:
    axe = pytest.importorskip("axe_core_python.sync_playwright").Axe()
    for path in ("/serve?model=Qwen/Qwen2.5-72B-Instruct&gpu=H100x2&context=32768&concurrency=8&prompt=500", "/train?x=",
                 "/paste",
                 "/compare?vs=model%3DQwen/Qwen2.5-7B-Instruct%26gpu%3D4090"):  # fmt: skip
        with _page(browser, width=width, scheme=scheme) as page:
            page.goto(f"{address}{path}{'&' if '?' in path else '?'}lang={code}".replace("?x=&", "?"))
            found = [(v["id"], n["html"][:120]) for v in axe.run(page)["violations"] for n in v["nodes"]]
            assert found == [], path
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
