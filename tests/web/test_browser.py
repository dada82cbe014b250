"""The page in a real browser: it follows the hand, keeps the address, speaks both languages, and axe finds nothing wrong."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
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
        while server.poll() is None:  # until it listens, or has ended
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


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
        found.set_default_timeout(300_000)
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


def test_two_letters_find_a_model_by_keyboard_alone(page: Any, address: str) -> None:
    page.goto(address)
    page.focus("#model")
    page.keyboard.type("ph")
    page.wait_for_selector("#model-options li")
    page.keyboard.press("ArrowDown")
    first = page.inner_text('#model-options li[aria-selected="true"]')
    assert "ph" in first.lower()
    page.keyboard.press("Enter")
    page.wait_for_url("**ph*")
    assert page.input_value("#model") == first
    assert page.get_attribute("#model", "aria-expanded") == "false"


def test_from_the_hand_to_the_picture(page: Any, address: str) -> None:
    """Each key of a dragged slider is measured in the browser (docs/web.md tells the median, which hangs on the machine)."""
    page.goto(f"{address}/serve?model=Qwen/Qwen2.5-7B-Instruct&gpu=4090&context=1024")
    page.focus('input[type="range"][data-for="context"]')
    for key in ("ArrowRight", "ArrowLeft") * 10:
        page.keyboard.press(key)
        page.wait_for_selector(ANSWERED)
    drawn = page.evaluate("performance.getEntriesByName('question to picture').length")
    assert drawn >= 10


def test_a_plan_is_ranked_and_drawn(page: Any, address: str) -> None:
    page.goto(f"{address}/plan")
    page.fill("#model", "Qwen/Qwen2.5-7B-Instruct")
    page.fill("#gpu", "RTX 4090x2, L4")
    page.fill("#rate", "2")
    page.click('button[type="submit"]')
    page.wait_for_selector("table.plain-table tbody tr")
    assert "vllm serve" in page.inner_text("#best")
    assert page.query_selector("figure.picture svg") is not None


def test_a_file_that_is_dropped_is_read(page: Any, address: str) -> None:
    page.goto(f"{address}/serve")
    page.evaluate(
        """() => { const held = new DataTransfer();
        held.items.add(new File(["stage: sft\\nmodel_name_or_path: meta-llama/Llama-3.1-8B\\nfinetuning_type: lora\\n"
          + "lora_rank: 8\\ncutoff_len: 2048\\ntemplate: llama3\\n"], "run.yaml"));
        dispatchEvent(new DragEvent("drop", { dataTransfer: held, cancelable: true })); }"""
    )
    page.wait_for_selector(".taken")
    assert "LLaMA-Factory" in page.inner_text(".taken")
    assert "meta-llama/Llama-3.1-8B" in page.inner_text("#answer")


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


def test_the_pictures_come_once_the_hand_rests_and_a_cell_asks(page: Any, address: str) -> None:
    page.goto(f"{address}/serve?model=Qwen/Qwen2.5-7B-Instruct&gpu=4090&context=32768")
    page.wait_for_selector(".wide-picture .cell")
    assert len(page.query_selector_all(".wide-picture .cell")) == 35
    page.click(".wide-picture .cell >> nth=0")
    page.wait_for_url("**context=2048*")
    assert page.input_value("#context") == "2048"


def test_a_part_of_the_bar_tells_its_formula_and_source(page: Any, address: str) -> None:
    page.goto(f"{address}/serve?model=Qwen/Qwen2.5-7B-Instruct&gpu=4090")
    page.hover(".card-bar .part >> nth=0")
    told = page.inner_text(".told")
    assert "bfloat16" in told
    assert "config.json" in told


def test_without_scripts_the_form_asks(browser: Any, address: str) -> None:
    with _page(browser, script=False) as page:
        page.goto(address)
        page.fill("#gpu", "A100 80GB")
        page.click('button[type="submit"]')
        assert "A100" in page.inner_text("#answer")


LOOKS = [(width, scheme, code) for width in (360, 1280) for scheme in ("light", "dark") for code in ("en", "zh")]
USUAL = [(360, "dark", "zh"), (1280, "light", "en")]  # VRAMCAST_ALL_LOOKS=1 runs all eight: 25 s each on a busy machine


LOOKED_AT = (
    "/serve?model=Qwen/Qwen2.5-72B-Instruct&gpu=H100x2&context=32768&concurrency=8&prompt=500", "/train?x=", "/plan?x=", "/paste",
    "/cards", "/compare?vs=model%3DQwen/Qwen2.5-7B-Instruct%26gpu%3D4090",
)  # fmt: skip


@pytest.mark.parametrize(("width", "scheme", "code"), LOOKS if os.environ.get("VRAMCAST_ALL_LOOKS") else USUAL)
def test_axe_finds_nothing_wrong(browser: Any, address: str, width: int, scheme: str, code: str) -> None:
    axe = pytest.importorskip("axe_core_python.sync_playwright").Axe()
    for path in LOOKED_AT if os.environ.get("VRAMCAST_ALL_LOOKS") else LOOKED_AT[width == 360 :: 2]:
        with _page(browser, width=width, scheme=scheme) as page:
            page.goto(f"{address}{path}{'&' if '?' in path else '?'}lang={code}".replace("?x=&", "?"))
            if page.query_selector("[data-pictures]"):  # they arrive after the answer, and are looked at too
                page.wait_for_selector("[data-pictures][data-shown]")
            found = [(v["id"], n["html"][:120]) for v in axe.run(page)["violations"] for n in v["nodes"]]
            assert found == [], path
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path


BLOCKS = (
    "header",
    "nav",
    ".opening",
    "form",
    ".result",
    ".card-bar svg",
    ".changes",
    "table.ledger",
    ".columns",
    ".same",
    "footer",
)
LOOKS_FILE = Path(__file__).with_name("looks.json")
_NEAR_PX = 6
# Boxes of what is shown, left to right; and texts of a picture that run over one another.
_BOXES = """(blocks) => Object.fromEntries(blocks.map((b) => [b, document.querySelector(b)])
  .filter(([, e]) => e && (e.offsetParent !== null || e instanceof SVGElement))
  .map(([b, e]) => [b, e.getBoundingClientRect()]).map(([b, r]) => [b, [Math.round(r.x), Math.round(r.width)]]))"""
_OVER = """() => [...document.querySelectorAll("figure svg")].flatMap((svg) => {
  const boxes = [...svg.querySelectorAll("text, rect[rx='2']")].map((t) => [t.textContent || "a key", t.getBoundingClientRect()]);
  const over = (r, s) => Math.min(r.right, s.right) - Math.max(r.left, s.left) > 3
    && Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top) > 5;
  return boxes.flatMap(([a, r], i) => boxes.slice(i + 1).filter(([, s]) => over(r, s)).map(([b]) => `${a} | ${b}`)); })"""


@pytest.mark.parametrize(("width", "scheme", "code"), [*USUAL, (1280, "dark", "zh")])
def test_the_page_stands_where_it_was_last_looked_at(browser: Any, address: str, width: int, scheme: str, code: str) -> None:
    """Left edges and widths of its blocks against those of the page that a person looked at; no two texts of a picture overlap.

    VRAMCAST_WRITE_LOOKS=1 writes looks.json anew, after the page was looked at.
    """
    if code == "zh" and not _has_chinese():
        pytest.skip("no font for Chinese: the widths of its texts say nothing")
    known = json.loads(LOOKS_FILE.read_text("utf-8")) if LOOKS_FILE.exists() else {}
    for path in (*LOOKED_AT, "/"):
        with _page(browser, width=width, scheme=scheme) as page:
            page.goto(f"{address}{path}{'&' if '?' in path else '?'}lang={code}".replace("?x=&", "?"))
            page.wait_for_selector("footer")
            if path == "/":
                page.wait_for_selector(".wide-picture ~ * .dot-mark, .dot-mark", state="attached")
            boxes = page.evaluate(_BOXES, list(BLOCKS))
            assert page.evaluate(_OVER) == [], path
        look = f"{path} {width} {code}"
        if os.environ.get("VRAMCAST_WRITE_LOOKS"):
            known[look] = boxes
            continue
        assert boxes.keys() == known[look].keys(), look
        far = {name: (box, known[look][name]) for name, box in boxes.items() if _far(box, known[look][name])}
        assert far == {}, look
    if os.environ.get("VRAMCAST_WRITE_LOOKS"):
        LOOKS_FILE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", "utf-8")


def _has_chinese() -> bool:
    """Whether fontconfig knows a font for Chinese; yes where nothing tells."""
    listing = shutil.which("fc-list")
    return listing is None or bool(subprocess.run([listing, ":lang=zh"], capture_output=True, check=False).stdout)


def _far(box: list[int], before: list[int]) -> bool:
    return any(abs(now - then) > _NEAR_PX for now, then in zip(box, before, strict=True))
