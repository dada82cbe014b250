"""What stands for data sets, texts and tokenizers: only for what a network would have given, and told as it is."""

import errno
import json
import socket
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import pytest
from small_scripts import STEPS, trace_without_hub

from vramcast.tracing.execution.advice import is_network
from vramcast.tracing.execution.packages import without_package
from vramcast.tracing.execution.stand_ins.asked_columns import columns_of_line, columns_of_script
from vramcast.tracing.published.configs import _by_id, published
from vramcast.tracing.published.corpora import corpus
from vramcast.tracing.published.data_sets import _known, data_set, value
from vramcast.tracing.published.tokenizers import special_tokens, tokenizer_files
from vramcast.tracing.published.words import LONGEST_PIECE, TOKENS_A_WORD, WORDS

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.mark.parametrize(
    ("failure", "lost"),
    [
        (URLError(socket.gaierror(-3, "Temporary failure in name resolution")), True),
        (URLError(ConnectionRefusedError(111, "refused")), True),
        (URLError(TimeoutError("timed out")), True),
        (URLError(FileNotFoundError(2, "no such file")), False),
        (URLError("unknown url type: htp"), False),
        (HTTPError("http://x/y", 404, "Not Found", None, None), False),  # type: ignore[arg-type]
        (OSError(errno.ENETUNREACH, "Network is unreachable"), True),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), False),
        (FileNotFoundError(2, "no such file"), False),
        (KeyError("train"), False),
        (OSError("We couldn't connect to 'https://huggingface.co' to load the files"), True),
    ],
)
def test_only_a_line_that_was_not_made_is_one_of_the_network(failure: BaseException, lost: bool) -> None:
    assert is_network(failure) is lost


def test_a_failure_is_one_of_the_network_by_what_it_was_raised_from() -> None:
    try:
        try:
            raise ConnectionError("no route")
        except ConnectionError as cause:
            raise RuntimeError("the rows could not be had") from cause
    except RuntimeError as failure:
        assert is_network(failure)


def test_a_failure_of_the_script_is_not_answered_with_made_up_rows(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    text = """
import datasets, transformers
def broken(*_, **__):
    raise KeyError("a fault of its own")
datasets.load.dataset_module_factory = broken
try:
    datasets.load_dataset("imdb")
except KeyError:
    print("surfaced")
else:
    raise AssertionError("made up")
class Own(transformers.PreTrainedConfig):
    @classmethod
    def _get_config_dict(cls, *_, **__):
        raise KeyError("another")
try:
    Own.get_config_dict("gpt2")
except KeyError:
    print("surfaced")
else:
    raise AssertionError("made up")
"""
    result = trace_without_hub(tmp_path, text + STEPS).result
    assert (result.error, result.steps) == ("", 2)
    assert not any("is not here" in note for note in result.notes)


def test_a_split_that_is_not_known_is_named_with_those_that_are(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    error = trace_without_hub(tmp_path, "import datasets\ndatasets.load_dataset('imdb', split='holdout')\n").result.error
    assert "data set stanfordnlp/imdb is not here, and of its splits train, test, unsupervised are known, not holdout" in error
    own = "import datasets\nrows = datasets.load_dataset('someone/rows', split='train_sft')\nassert rows[0]['question']\n"
    assert trace_without_hub(tmp_path, own + STEPS).result.error == ""


@pytest.mark.parametrize(
    ("path", "name"), [("", None), ("glue", None), ("glue", ""), ("glue", "no_such_task"), ("someone/imdb", None)]
)
def test_what_is_no_published_set_is_not_answered(path: str, name: str | None) -> None:
    assert data_set(path, name) is None


def test_a_configuration_that_is_not_known_is_told() -> None:
    found = data_set("xnli", "sw")
    assert found is not None
    assert "its configuration 'sw' is not known by name" in found.rows
    plain = data_set("imdb", "plain_text")
    assert plain is not None
    assert plain.rows == "rows like its own are made up, their lengths about as usual"


def test_a_set_that_only_resembles_another_is_told_so() -> None:
    alike = data_set("knkarthick/dialogsum")
    assert alike is not None
    assert alike.rows.startswith("rows like those of Samsung/samsum are made up")
    assert "its own columns, labels and splits may differ" in alike.rows
    described = [made for made in _known().values() if not made.like]
    assert all(made.id.lower() not in {other.like.lower() for other in described} for made in described)


# The classes, rows and columns that the sets' own pages state.
@pytest.mark.parametrize(
    ("path", "name", "column", "kind", "rows"),
    [
        ("cifar100", None, "fine_label", "label:100", 50_000),
        ("PolyAI/banking77", None, "label", "label:77", 10_003),
        ("takala/financial_phrasebank", "sentences_50agree", "label", "label:3", 4_846),
        ("CogComp/trec", None, "fine_label", "label:50", 5_452),
        ("glue", "stsb", "label", "float", 5_749),
        ("glue", "rte", "label", "label:2", 2_490),
        ("simplescaling/s1K", None, "question", "text:60", 1_000),
    ],
)
def test_sets_of_one_kind_have_their_own_labels(path: str, name: str | None, column: str, kind: str, rows: int) -> None:
    found = data_set(path, name)
    assert found is not None
    assert (found.columns[column], found.splits["train"], found.like) == (kind, rows, "")


def test_made_up_words_come_to_the_tokens_that_are_stated(tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    assert sum(-(-len(word) // LONGEST_PIECE) for word in WORDS) / len(WORDS) == pytest.approx(TOKENS_A_WORD)
    found = published("gpt2")
    assert found is not None
    for file, written in tokenizer_files(found.config).items():
        (tmp_path / file).write_text(written)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(tmp_path))
    texts = [str(value("text:170", number, {})) for number in range(40)]
    tokens, words = (sum(map(len, each)) for each in (tokenizer(texts)["input_ids"], map(str.split, texts)))
    assert tokens / words == pytest.approx(TOKENS_A_WORD, rel=0.02)


def _special(config: dict[str, Any]) -> dict[str, int]:
    """The id of each part of a made-up tokenizer."""
    written = tokenizer_files(config)
    ids = {token["content"]: token["id"] for token in json.loads(written["tokenizer.json"])["added_tokens"]}
    told = json.loads(written["tokenizer_config.json"])
    return {part: ids[told[f"{part}_token"]] for part in ("bos", "eos", "pad") if f"{part}_token" in told}


def test_special_tokens_stand_where_every_published_config_names_them() -> None:
    wrong = []
    for name, found in _by_id().items():
        text = found.config | found.config.get("text_config", {}) | found.config.get("llm_config", {})
        for part, place in special_tokens(found.config).items() if "model_type" in found.config else ():
            named = text.get(f"{part}_token_id")
            among = named if isinstance(named, list) else [named]
            if isinstance(among[0], int) and 0 <= among[0] < text.get("vocab_size", 0) and place not in among:
                wrong.append((name, part, place, named))
    assert wrong == []


# Ids of the published tokenizers (tokenizer_config.json on the hub).
@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("Qwen/Qwen2.5-0.5B", {"eos": 151_643, "pad": 151_643}),
        ("Qwen/Qwen2.5-0.5B-Instruct", {"eos": 151_645, "pad": 151_643}),
        ("Qwen/Qwen3.5-0.8B", {"eos": 248_044, "pad": 248_044}),
        ("openai-community/gpt2", {"bos": 50_256, "eos": 50_256}),
        ("EleutherAI/gpt-neo-125m", {"bos": 50_256, "eos": 50_256}),
        ("EleutherAI/pythia-160m", {"bos": 0, "eos": 0}),
        ("meta-llama/Llama-2-7b-hf", {"bos": 1, "eos": 2}),
        ("huggyllama/llama-7b", {"bos": 1, "eos": 2}),
        ("meta-llama/Llama-3.1-8B-Instruct", {"bos": 128_000, "eos": 128_009}),
        ("facebook/opt-125m", {"bos": 2, "eos": 2, "pad": 1}),
        ("bigscience/bloom-560m", {"bos": 1, "eos": 2, "pad": 3}),
        ("microsoft/Phi-3-mini-4k-instruct", {"bos": 1, "eos": 32_000, "pad": 32_000}),
        ("microsoft/mpnet-base", {"bos": 0, "eos": 2, "pad": 1}),
    ],
)
def test_special_tokens_are_those_of_published_tokenizers(name: str, ids: dict[str, int]) -> None:
    found = published(name)
    assert found is not None
    assert _special(found.config) == ids


@pytest.mark.parametrize(
    ("name", "longest"),
    [("facebook/bart-base", 1024), ("microsoft/mpnet-base", 512), ("FacebookAI/roberta-base", 512), ("bert-base-uncased", 512)],
)
def test_texts_are_cut_where_published_tokenizers_cut_them(name: str, longest: int) -> None:
    found = published(name)
    assert found is not None
    assert json.loads(tokenizer_files(found.config)["tokenizer_config.json"])["model_max_length"] == longest


@pytest.mark.parametrize(
    ("name", "source", "method"),
    [
        ("TheBloke/Llama-2-7B-GPTQ", "meta-llama/Llama-2-7b-hf", "gptq"),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "Qwen/Qwen2.5-7B-Instruct", "awq"),
        ("unsloth/llama-3-8b-bnb-4bit", "meta-llama/Meta-Llama-3-8B", "bitsandbytes"),
        ("unsloth/Meta-Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B-Instruct", None),
    ],
)
def test_a_copy_keeps_its_form_and_the_scheme_that_its_name_says(name: str, source: str, method: str | None) -> None:
    found = published(name)
    assert found is not None
    assert found.source == source
    assert found.config.get("quantization_config", {}).get("quant_method") == method


@pytest.mark.parametrize(
    ("address", "characters", "kinds"),
    [
        ("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt", 1_115_394, 65),
        ("https://raw.githubusercontent.com/karpathy/makemore/master/names.txt", 228_145, 27),
    ],
)
def test_a_known_text_has_its_characters_and_their_kinds(address: str, characters: int, kinds: int) -> None:
    found = corpus(address)
    assert found is not None
    text = found.text()
    assert (len(text), len(set(text))) == (characters, kinds)


def test_a_list_of_labels_is_no_text() -> None:
    assert corpus("https://raw.githubusercontent.com/pytorch/hub/master/imagenet_classes.txt") is None


def test_a_note_stands_only_for_what_was_made_up(tmp_path: Path) -> None:
    text = """
from transformers import AutoConfig, CLIPImageProcessor
try:
    CLIPImageProcessor.from_pretrained("gpt2")
except Exception as failure:
    print(type(failure))
AutoConfig.from_pretrained("distilgpt2")
"""
    notes = trace_without_hub(tmp_path, text + STEPS).result.notes
    assert not any(note.startswith("gpt2 is not here") for note in notes)
    assert any(note.startswith("distilgpt2 is not here") for note in notes)


def test_a_slow_answer_of_the_resolver_is_not_taken_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    import huggingface_hub.constants as hub

    from vramcast.tracing.execution.stand_ins import reachable

    for proxy in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(proxy, raising=False)
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(reachable, "_SECONDS", 0.05)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: time.sleep(0.3))
    monkeypatch.setenv("HF_ENDPOINT", "https://slow.invalid")
    reachable.look_once()
    assert hub.HF_HUB_OFFLINE is False

    def refuse(*_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("HF_ENDPOINT", "https://nobody.invalid")
    monkeypatch.setattr(reachable, "_SECONDS", 5.0)
    reachable.look_once()
    assert hub.HF_HUB_OFFLINE is True


@pytest.mark.parametrize(
    ("listed", "asked"),
    [
        ("  - tap-not-here=2.1", "==2.1"),
        ("  - tap-not-here=2.1=py38_0", "==2.1"),
        ("tap-not-here>=2.1,<3", ">=2.1,<3"),
    ],
)
def test_a_pin_is_told_as_pip_takes_it(listed: str, asked: str, tmp_path: Path) -> None:
    (tmp_path / "environment.yml").write_text(f"dependencies:\n{listed}\n")
    missing = ModuleNotFoundError("No module named 'tap_not_here'", name="tap_not_here")
    assert f"pip install 'tap_not_here{asked}' (environment.yml lists it)" in without_package(missing, tmp_path)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("triton_x.y", "pip install triton_x, if"),
        ("triton", "pip install triton (it imports"),
        ("cv2.dnn", "opencv-python-headless"),
    ],
)
def test_a_module_that_is_not_there_is_named_with_its_package(module: str, said: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("vramcast.tracing.execution.packages.find_spec", lambda _: None)
    assert said in without_package(ModuleNotFoundError(f"No module named {module!r}", name=module), tmp_path)


def test_a_length_is_cut_to_a_shape_that_is_given_by_name() -> None:
    import torch

    from vramcast.tracing.execution.kernels.guessed_length import _cut, _fitting

    class Marked(torch.Tensor):
        _vramcast_guessed_length = True

    whole = torch.zeros(10).as_subclass(Marked)
    assert _fitting(torch.Tensor.view)(whole, size=(2, 4)).shape == (2, 4)
    assert _fitting(torch.Tensor.reshape)(whole, shape=(3, -1)).shape == (3, 3)
    assert _cut(whole, (2, 3)).numel() == 6


def test_columns_that_a_script_does_not_know_are_left_out_of_its_rows(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    text = """
from datasets import load_dataset
rows = load_dataset("togethercomputer/RedPajama-Data-1T-Sample", split="train")
assert {"text", "meta", "url"} <= set(rows.column_names)
halves = rows.map(lambda batch: {"input_ids": [[1], [2]]}, batched=True, num_proc=8, remove_columns=["text", "meta"])
assert halves.column_names == ["input_ids"]
"""
    result = trace_without_hub(tmp_path, text + STEPS).result
    assert (result.error, result.steps) == ("", 2)


def test_a_command_line_names_columns() -> None:
    assert list(columns_of_line(["--dataset_text_field", "content", "--image_column=image", "--seed", "1"])) == [
        "content",
        "image",
    ]
    own = ["--dataset_text_field", "a_name_of_ones_own", "--response_column=reply", "--label_column_name", "kind"]
    assert columns_of_line(own) == {"a_name_of_ones_own": "text:250", "reply": "text:100"}


def test_a_trainer_says_what_rows_it_reads_where_the_script_does_not() -> None:
    assert columns_of_script(["from trl import DPOTrainer\n"]).keys() == {"prompt", "chosen", "rejected"}
    assert columns_of_script(["from trl import DPOTrainer\nrow.get('question')\n"]).keys() == {"question"}
