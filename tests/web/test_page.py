"""The page works without its script: form, answer, links that mend, both languages."""

import json
import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from vramcast.language import LANGUAGES

SHORT = "/serve?model=Qwen/Qwen2.5-72B-Instruct&gpu=H100&context=32768"


def _links(text: str, within: str) -> list[str]:
    found = re.findall(r'<a class="button" href="([^"]+)"', text[text.index(within) :])
    return [link.replace("&amp;", "&") for link in found]


@pytest.mark.parametrize("path", ["/", "/serve", "/train", "/compare", "/paste", "/cards", "/api"])
@pytest.mark.parametrize("code", LANGUAGES)
def test_every_place_opens_in_every_language(client: Any, path: str, code: str) -> None:
    found = client.get(path, params={"lang": code})
    assert found.status_code == 200
    assert f'<html lang="{code}">' in found.text
    _Balanced().feed(found.text)


def test_the_first_page_answers_at_once(client: Any) -> None:
    text = client.get("/").text
    assert '<span class="verdict fits">Fits</span>' in text
    assert text.count("<tr data-term=") >= 5


def test_the_browser_language_is_followed(client: Any) -> None:
    assert "放得下" in client.get("/", headers={"accept-language": "zh-CN,zh;q=0.9,en;q=0.8"}).text
    assert "Fits" in client.get("/", headers={"accept-language": "fr"}).text


def test_each_piece_of_advice_applies_itself(client: Any) -> None:
    text = client.get(SHORT).text
    links = _links(text, 'class="advice"')
    marks = re.findall(r'class="verdict small (\w+)"', text)
    assert len(links) == len(marks) >= 3
    for link, mark in zip(links, marks, strict=True):
        then = re.search(r'<h2><span class="verdict (\w+)"', client.get(link).text)
        assert then is not None, link
        if mark != "unknown":
            assert then[1] == mark, link


def test_a_problem_stands_on_the_page_with_its_mend(client: Any) -> None:
    text = client.get("/serve?model=Qwen/Qwen2.5-7B-Instruct&gpu=4090&context=131072").text
    assert 'data-field="context"' in text
    mended = _links(text, 'class="problem"')[0]
    assert parse_qs(urlsplit(mended).query)["context"] == ["32768"]
    assert 'class="verdict' in client.get(mended).text


def test_what_a_visitor_types_is_escaped(client: Any) -> None:
    text = client.get("/serve", params={"model": '"><script>alert(1)</script>', "gpu": "<b>"}).text
    assert "<script>alert" not in text
    assert "<b>" not in text


def test_more_cache_than_there_is_room_for_is_drawn(client: Any) -> None:
    text = client.get(SHORT + "&concurrency=8").text
    assert 'data-term="missing"' in text
    assert '<tr data-term="missing">' in text


def test_the_pictures_beside_an_answer(client: Any) -> None:
    text = client.get("/pictures?model=Qwen/Qwen2.5-7B-Instruct&gpu=4090&prompt=1000&output=300&alone=1").text
    wide, narrow = text[: text.index("narrow-picture")], text[text.index("narrow-picture") :]
    for half in (wide, narrow):
        cells = re.findall(r'class="cell (\w+)"', half)
        assert len(cells) == 5 * 7  # contexts of 2k to 32k, the model's end; one to 64 users
        assert {"fits", "partly"} <= set(cells)
    assert text.count("<svg") == 6  # the map, the curve and the roofline, each for a wide place and for a phone
    assert ">qkv<" in text


def test_a_cell_of_the_map_asks_its_question(client: Any) -> None:
    text = client.get("/pictures?model=Qwen/Qwen2.5-7B-Instruct&gpu=4090&prompt=1000&alone=1").text
    for verdict, address in re.findall(r'<a href="([^"]+)" class="cell (\w+)"', text[: text.index("narrow-picture")])[::7]:
        then = client.get(verdict.replace("&amp;", "&")).text
        assert f'<span class="verdict {address}">' in then, verdict


def test_a_pasted_command_is_answered(client: Any) -> None:
    found = client.post("/paste", data={"text": "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 8192", "gpu": "4090"}).text
    assert "which starts vllm" in found
    assert '<span class="verdict fits">' in found


def test_a_question_in_words_is_answered_and_what_it_did_not_read_is_told(client: Any) -> None:
    found = client.post("/paste", data={"text": "can I run qwen3 8b on windows with a 4090", "gpu": ""}).text
    assert "a question in words" in found and "not read, and not counted: windows" in found
    assert "Qwen/Qwen3-8B" in found
    assert "a plan answers this" in client.post("/paste", data={"text": "how many H100 for llama 3 70b", "gpu": ""}).text


def test_a_pasted_config_is_answered(client: Any) -> None:
    config = json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 4096,
        "num_attention_heads": 16, "num_hidden_layers": 4, "vocab_size": 32000, "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    })  # fmt: skip
    assert "your config.json" in client.post("/paste", data={"text": config, "gpu": "4090"}).text


def test_two_set_ups_stand_beside_each_other(client: Any) -> None:
    one, two = "model=Qwen/Qwen2.5-7B-Instruct&gpu=4090", "/train?model=meta-llama/Llama-3.1-8B&gpu=H100&method=lora"
    text = client.get("/compare", params={"vs": [one, two, "model=nope"]}).text
    assert text.count("<article>") == 3
    assert text.count('class="problem"') == 1


class _Balanced(HTMLParser):
    """Raises where a tag is closed that is not open."""

    _VOID = frozenset({"meta", "link", "input", "br", "hr", "path", "rect", "option"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self._VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self._VOID:
            assert self.open.pop() == tag, (tag, self.getpos())


@pytest.mark.parametrize(
    "path", [SHORT, "/train?model=meta-llama/Llama-3.1-8B&gpu=RTX 4090&seq=2048", "/serve?model=Qwen/Qwen3-8B"]
)
def test_the_script_gets_the_answer_first_and_the_same_advice_after_it(client: Any, path: str) -> None:
    place, _, query = path.partition("?")
    first = client.get(f"/answer{place}?{query}&part=first").text
    whole = client.get(f"/answer{place}?{query}").text
    assert 'class="advice"' not in first
    (later,) = re.findall(r'data-rest="([^"]+)"', first)
    rest = client.get(later.replace("&amp;", "&")).text
    told = [re.findall(r'<li><a class="button"[^>]*>(?:<code>)?([^<]+)', text) for text in (rest, whole)]
    assert told[0] == told[1] != []
    assert re.findall(r"<h2>.*?</h2>", first) == re.findall(r"<h2>.*?</h2>", whole)


def test_an_answer_that_fits_waits_for_nothing(client: Any) -> None:
    text = client.get("/answer/serve?model=Qwen/Qwen3-8B&gpu=H100&part=first").text
    assert "data-rest" not in text
    assert "data-part" in text
