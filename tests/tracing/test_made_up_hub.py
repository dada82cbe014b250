"""Scripts that ask a hub for configs, tokenizers and data sets where there is none: what is made up, and how it is told."""

import statistics
from pathlib import Path

import pytest
from small_scripts import STEPS, trace_without_hub

from vramcast.tracing.execution.packages import without_package
from vramcast.tracing.published.configs import published
from vramcast.tracing.published.data_sets import data_set, row, value, words_of
from vramcast.tracing.published.preprocessors import preprocessor_file
from vramcast.tracing.published.tokenizers import tokenizer_files

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("gpt2", "openai-community/gpt2"),
        ("bert-base-uncased", "google-bert/bert-base-uncased"),
        ("NousResearch/Llama-2-7b-hf", "meta-llama/Llama-2-7b-hf"),
        ("unsloth/Llama-3.2-1B", "meta-llama/Llama-3.2-1B"),
        ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"),
    ],
)
def test_a_model_is_known_by_its_id_and_by_its_copies(name: str, source: str) -> None:
    found = published(name)
    assert found is not None
    assert found.source == source


def test_a_name_that_nobody_knows_is_not_answered() -> None:
    assert published("someone/my-own-finetune-v3") is None
    assert data_set("someone/my-own-rows") is None


def test_a_four_bit_copy_keeps_its_four_bits() -> None:
    found = published("unsloth/Llama-3.2-1B-bnb-4bit")
    assert found is not None
    assert found.config["quantization_config"]["bnb_4bit_quant_type"] == "nf4"


# Parameters as the model pages on the hub count them.
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("openai-community/gpt2", 124_439_808),
        ("distilbert/distilbert-base-uncased", 66_985_530),
        ("FacebookAI/roberta-base", 124_697_433),
        ("facebook/opt-350m", 331_196_416),
        ("facebook/bart-base", 139_420_416),
        ("google/vit-base-patch16-224-in21k", 86_389_248),
        ("facebook/convnext-tiny-224", 28_589_128),
        ("microsoft/resnet-50", 25_557_032),
        ("openai/clip-vit-base-patch32", 151_277_313),
        ("openai/whisper-small", 241_734_912),
        ("facebook/wav2vec2-large-xlsr-53", 317_390_592),
        ("HuggingFaceTB/SmolLM2-135M", 134_515_008),
        ("Qwen/Qwen2.5-0.5B", 494_032_768),
    ],
)
def test_published_configs_build_the_published_model(name: str, parameters: int) -> None:
    import torch
    import transformers

    found = published(name)
    assert found is not None
    config = transformers.AutoConfig.for_model(**found.config)
    with torch.device("meta"):
        model = getattr(transformers, found.config["architectures"][0])(config)
    assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize(
    "name", ["gpt2", "bert-base-uncased", "roberta-base", "t5-small", "meta-llama/Llama-2-7b-hf", "Qwen/Qwen3-0.6B"]
)
def test_a_made_up_tokenizer_has_as_many_tokens_and_cuts_as_finely(name: str, tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    found = published(name)
    assert found is not None
    for file, text in tokenizer_files(found.config).items():
        (tmp_path / file).write_text(text)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(tmp_path))
    text = "The scheduler gives every request a slot before any of them begins to decode, and takes it back at the end."
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len(tokenizer) == found.config["vocab_size"]
    assert 1.2 * len(text.split()) <= len(tokens) <= 1.6 * len(text.split())
    assert set(tokens).isdisjoint(tokenizer.all_special_ids)
    for part in ("bos", "eos", "pad"):
        placed = found.config.get(f"{part}_token_id")
        if placed is not None and getattr(tokenizer, f"{part}_token") is not None:
            assert getattr(tokenizer, f"{part}_token_id") == placed


def test_a_bert_tokenizer_frames_pairs() -> None:
    import json

    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(tokenizer_files({"model_type": "bert", "vocab_size": 30_522})["tokenizer.json"])
    coded = tokenizer.encode("hello", "you")
    assert (coded.ids[0], coded.ids[-1]) == (101, 102)
    assert coded.type_ids == [0, 0, 0, 1, 1]
    assert (
        json.loads(preprocessor_file({"model_type": "vit", "image_size": 384})["preprocessor_config.json"])["size"]["height"]
        == 384
    )


def test_a_script_that_names_the_hub_takes_its_two_steps(tmp_path: Path) -> None:
    text = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, BertTokenizer
tokenizer = AutoTokenizer.from_pretrained("gpt2")
assert len(tokenizer) == 50257 and tokenizer.pad_token is None
assert len(BertTokenizer.from_pretrained("bert-base-uncased", subfolder=None)) == 30522
model = AutoModelForCausalLM.from_pretrained("gpt2", dtype=torch.float32).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    batch = tokenizer(["what is asked"] * 4, return_tensors="pt").to("cuda")
    model(**batch, labels=batch["input_ids"]).loss.backward()
    optimizer.step()
"""
    result = trace_without_hub(tmp_path, text).result
    assert (result.error, result.steps) == ("", 2)
    assert any(
        "gpt2 is not here: its config is that of openai-community/gpt2; its tokenizer is made up" in n for n in result.notes
    )


def test_a_script_that_names_what_nobody_knows_is_told_where_to_put_it(tmp_path: Path) -> None:
    error = trace_without_hub(
        tmp_path, "from transformers import AutoTokenizer\nAutoTokenizer.from_pretrained('someone/own-model')\n"
    ).result.error
    assert "hf download someone/own-model --local-dir DIR" in error


def test_a_missing_package_is_told_with_what_installs_it(tmp_path: Path) -> None:
    error = trace_without_hub(tmp_path, "import measures_not_here.parts\nmeasures_not_here.parts.run()\n").result.error
    assert "pip install measures_not_here, if the package that has it is called so" in error
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "own_helpers.py").write_text("")
    near = without_package(ModuleNotFoundError("No module named 'own_helpers'", name="own_helpers"), tmp_path)
    assert near == f"; it is a folder of the program: PYTHONPATH={tmp_path / 'deeper'}"
    missing = ModuleNotFoundError("No module named 'tap_not_here'", name="tap_not_here")
    (tmp_path / "requirements.txt").write_text("typed_argument_parser\n tap-not-here >= 2.1  # of ours\n")
    assert without_package(missing, tmp_path).endswith("pip install 'tap_not_here>=2.1' (requirements.txt lists it)")
    other = ModuleNotFoundError("No module named 'unknown_not_here'", name="unknown_not_here")
    assert without_package(other, tmp_path).endswith("pip install -r requirements.txt")
    own = without_package(ModuleNotFoundError("No module named 'utils'", name="utils.prompts"), tmp_path)
    assert "utils.py" in own and "pip install" not in own
    assert without_package(ImportError("cannot import name 'x'"), tmp_path) == ""


def test_every_published_data_set_has_rows() -> None:
    from vramcast.tracing.published.data_sets import _known

    for known in _known().values():
        made = row(known.columns, 7)
        assert list(made) == list(known.columns)
        assert all(each is not None for each in made.values())
        assert all(count > 0 for count in known.splits.values())


def test_texts_are_as_long_as_published_ones_at_the_median() -> None:
    lengths = [words_of(174, number) for number in range(1000)]
    assert statistics.median(lengths) == pytest.approx(174, rel=0.02)
    assert max(lengths) > 4 * 174
    assert len(str(value("text:174", 3, {})).split()) == words_of(174, 3)


@pytest.mark.parametrize(
    ("path", "name", "columns"),
    [
        ("glue", "mrpc", ["sentence1", "sentence2", "label", "idx"]),
        ("squad", None, ["id", "title", "context", "question", "answers"]),
        ("wikitext", "wikitext-2-raw-v1", ["text"]),
        ("tatsu-lab/alpaca", None, ["instruction", "input", "output", "text"]),
    ],
)
def test_data_sets_are_known_with_and_without_their_organisation(path: str, name: str | None, columns: list[str]) -> None:
    found = data_set(path, name)
    assert found is not None
    assert list(found.columns) == columns


def test_an_answer_of_a_question_stands_in_its_context() -> None:
    found = data_set("squad")
    assert found is not None
    made = row(found.columns, 11)
    start = made["answers"]["answer_start"][0]
    assert made["context"][start:].startswith(made["answers"]["text"][0])


def test_load_dataset_is_answered_with_rows_like_its_own(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    text = (
        """
import torch
from datasets import load_dataset
rows = load_dataset("imdb", split="train[:10%]")
assert rows.column_names == ["text", "label"] and rows.features["label"].num_classes == 2
assert len(rows.select(range(20_000))) == 20_000
assert rows.map(lambda each: {"words": len(each["text"].split())}, num_proc=2)["words"][0] > 0
assert set(load_dataset("glue", "mrpc")) == {"train", "validation", "test"}
assert next(iter(load_dataset("allenai/c4", "en", split="train", streaming=True)))["text"]
own = load_dataset("someone/own-rows", split="train")
assert own[0]["question"] and own[0]["answer"]
"""
        + STEPS
    )
    result = trace_without_hub(tmp_path, text).result
    assert (result.error, result.steps) == ("", 2)
    assert any(note.startswith("data set imdb is not here: rows like its own are made up") for note in result.notes)
    assert any("someone/own-rows is not here nor known" in note for note in result.notes)


def test_another_version_is_told_with_the_one_that_the_program_asks(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy\ntransformers==4.2.1  # as published\n")
    failure = ImportError("cannot import name 'torch_required' from 'transformers.file_utils'", name="transformers.file_utils")
    advice = without_package(failure, tmp_path)
    assert advice.endswith("is here: requirements.txt asks transformers==4.2.1")
    assert "install the version" in without_package(failure, tmp_path.parent / "nothing")


def test_a_worker_that_fails_is_told_with_its_reason(tmp_path: Path) -> None:
    text = """
import torch
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, place):
        raise KeyError("no such column")
next(iter(torch.utils.data.DataLoader(Rows(), num_workers=1)))
"""
    error = trace_without_hub(tmp_path, text).result.error
    assert error.startswith("KeyError: 'no such column' in a loader's worker")
    assert "train.py" in error


def test_texts_that_a_script_fetches_are_made_up(tmp_path: Path) -> None:
    text = (
        """
import os, urllib.request
from urllib.error import URLError
plays = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
def lost(*_, **__):
    raise URLError(ConnectionRefusedError(111, "refused"))
urllib.request.OpenerDirector.open = lost
urllib.request.urlretrieve(plays, "input.txt")
assert os.path.getsize("input.txt") == 1_115_394
with urllib.request.urlopen("https://nowhere.invalid/the-verdict.txt") as answer:
    assert len(answer.read().decode("utf-8")) == 20_479
for other in ("https://nowhere.invalid/archive.zip", "https://nowhere.invalid/labels.txt"):
    try:
        urllib.request.urlopen(other)
    except URLError:
        print("as before")
    else:
        raise AssertionError(other)
"""
        + STEPS
    )
    result = trace_without_hub(tmp_path, text).result
    assert (result.error, result.steps) == ("", 2)
    assert any("a text of 1,115,394 characters of 65 kinds is made up" in note for note in result.notes)
    assert not (tmp_path / "input.txt").exists()


def test_an_encoding_that_is_made_up_has_the_tokens_of_its_own() -> None:
    from vramcast.tracing.execution.stand_ins.downloads import MadeUpEncoding

    encoding = MadeUpEncoding("gpt2", 50_257, 50_256)
    said = "Every effort moves you <|endoftext|> forward"
    tokens = encoding.encode(said, allowed_special={"<|endoftext|>"})
    assert tokens.count(50_256) == 1
    assert max(tokens) < encoding.n_vocab
    assert encoding.decode(tokens) == said
    assert encoding.encode_batch([said]) == [tokens]


def test_a_folder_elsewhere_that_is_called_as_a_published_model_is(tmp_path: Path) -> None:
    text = """
from transformers import AutoModelForCausalLM, AutoTokenizer
for place in ("/data2/Qwen/Qwen2.5-0.5B", "./models/gpt2/"):
    assert len(AutoTokenizer.from_pretrained(place)) > 50000
    print(AutoModelForCausalLM.from_pretrained(place).num_parameters())
"""
    result = trace_without_hub(tmp_path, text + STEPS).result
    assert (result.error, result.steps) == ("", 2)
    assert any(note.startswith("/data2/Qwen/Qwen2.5-0.5B is not here: its config is that of") for note in result.notes)
    text = "from transformers import AutoConfig\nAutoConfig.from_pretrained('./out/my-own-model')\n"
    assert "my-own-model" in trace_without_hub(tmp_path, text).result.error
