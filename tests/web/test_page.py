"""The page works without its script: form, answer, links that mend, both languages."""

import json
import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from vramcast.web.language import FOLDER, LANGUAGES, language

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


def test_the_map_has_a_cell_for_each_pair(client: Any) -> None:
    text = client.get("/map?model=Qwen/Qwen2.5-7B-Instruct&gpu=4090&alone=1").text
    cells = re.findall(r'class="cell (\w+)"', text)
    assert len(cells) == 4 * 7  # contexts of 4k to 32k, the model's end; one to 64 users
    assert {"fits", "partly"} <= set(cells)


def test_a_pasted_command_is_answered(client: Any) -> None:
    found = client.post("/paste", data={"text": "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 8192", "gpu": "4090"}).text
    assert "which starts vllm" in found
    assert '<span class="verdict fits">' in found


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


def test_no_language_lacks_a_message() -> None:
    ids = {code: set(language(code)._bundle._messages) for code in LANGUAGES}
    own = {
        code: set(re.findall(r"^([a-z0-9-]+) =", (FOLDER / f"{code}.ftl").read_text("utf-8"), re.MULTILINE)) for code in LANGUAGES
    }
    assert own["en"] == own["zh"] == ids["en"]


def test_messages_take_the_same_values_in_every_language() -> None:
    folder = FOLDER
    taken = {
        code: {
            line.split(" =")[0]: set(re.findall(r"\$(\w+)", line))
            for line in (folder / f"{code}.ftl").read_text("utf-8").splitlines()
            if " = " in line
        }
        for code in LANGUAGES
    }
    assert taken["en"] == taken["zh"]


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
