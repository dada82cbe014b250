"""Scripts of earlier years: names and arguments that moved, and packages that are imported for settings which are not asked."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from small_scripts import STEPS, trace_without_hub

from vramcast.tracing.execution.stand_ins.older_arguments import line_today, today
from vramcast.tracing.execution.stand_ins.older_calls import adapted
from vramcast.tracing.published.moved import Call, module_today, moved

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("transformers")


def test_names_that_moved_are_answered_and_told(tmp_path: Path) -> None:
    text = """
import collections, inspect, torch
from torch._six import string_classes, inf
from transformers import AdamW, AutoModelWithLMHead
from transformers.deepspeed import is_deepspeed_zero3_enabled
from transformers.modeling_bert import BertLayer
from transformers.trainer_utils import EvaluationStrategy
import transformers.generation_utils as generation
assert isinstance("x", string_classes) and inf > 1 and issubclass(dict, collections.Mapping)
assert is_deepspeed_zero3_enabled() is False and EvaluationStrategy.NO and BertLayer and generation.GenerationMixin
assert inspect.getargspec(lambda a: a).args == ["a"]
model = torch.nn.Linear(64, 64).cuda()
optimizer = AdamW(model.parameters(), lr=1e-4, correct_bias=True)
assert optimizer.defaults["foreach"] is False and optimizer.defaults["weight_decay"] == 0.0
for _ in range(2):
    model(torch.randn(4, 64, device="cuda")).sum().backward()
    optimizer.step()
"""
    result = trace_without_hub(tmp_path, text).result
    assert (result.error, result.steps) == ("", 2)
    for told in ("torch._six is of", "transformers.AdamW is of", "transformers.deepspeed is of", "collections.Mapping is of"):
        assert any(note.startswith(told) for note in result.notes), told


def test_a_moved_name_in_a_try_fails_as_it_would(tmp_path: Path) -> None:
    text = """
import torch
try:
    from transformers import AdamW
except ImportError:
    AdamW = None
try:
    import torch._six
except ImportError:
    AdamW = AdamW or "none"
assert AdamW == "none"
"""
    result = trace_without_hub(tmp_path, text + STEPS).result
    assert (result.error, any("earlier version" in note for note in result.notes)) == ("", False)


def test_every_name_of_the_table_is_where_it_says() -> None:
    import importlib

    places = [place for names in moved().names.values() for place in names.values() if place]
    wrong = []
    for place in places:
        module, _, name = place.partition(":")
        try:
            found = hasattr(importlib.import_module(module), name)
        except ImportError:
            continue  # a library that is not installed here
        if not found:
            wrong.append(place)
    assert wrong == []
    assert module_today("transformers.modeling_gpt2") == "transformers.models.gpt2.modeling_gpt2"
    assert module_today("transformers.modeling") == ""


def test_arguments_are_passed_by_the_names_of_today() -> None:
    told: list[tuple[str, str]] = []
    given = {
        "evaluation_strategy": "no",
        "adafactor": True,
        "group_by_length": False,
        "save_safetensors": True,
        "bf16": True,
        "own": 1,
    }
    assert today(given, {"bf16"}, lambda *each: told.append(each)) == {
        "eval_strategy": "no",
        "optim": "adafactor",
        "bf16": True,
        "own": 1,
    }
    assert [name for name, _ in told] == ["evaluation_strategy", "adafactor", "save_safetensors"]


def test_a_command_line_is_passed_by_the_names_of_today() -> None:
    words = [
        "--evaluation_strategy=steps",
        "--overwrite_output_dir",
        "--bf16",
        "True",
        "--own",
        "a",
        "b",
        "--per-gpu-train-batch-size",
        "4",
    ]
    words += ["--fsdp_transformer_layer_cls_to_wrap", "LlamaDecoderLayer"]
    made = line_today(words, {"bf16"}, lambda *_: None)
    assert made[:8] == ["--eval_strategy", "steps", "--bf16", "True", "--own", "a", "b", "--per_device_train_batch_size"]
    assert made[8:] == ["4", "--fsdp_config", '{"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}']
    assert line_today(["--evaluation_strategy", "x"], {"evaluation_strategy"}, lambda *_: None) == ["--evaluation_strategy", "x"]


def test_a_trainer_of_before_takes_its_steps(tmp_path: Path) -> None:
    text = """
import torch
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        outputs = model(**inputs)
        return (outputs.loss, outputs) if return_outputs else outputs.loss
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, place): return {"input_ids": torch.arange(16), "labels": torch.arange(16)}
line = ["--output_dir", "out", "--evaluation_strategy", "no", "--overwrite_output_dir", "--max_steps", "3", "--report_to", "none"]
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(line)
args = TrainingArguments(output_dir="out", evaluation_strategy="no", max_steps=3, report_to="none", save_safetensors=False)
config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=100)
trainer = Own(model=LlamaForCausalLM(config), args=args, train_dataset=Rows(), tokenizer=None)
trainer.train()
"""
    result = trace_without_hub(tmp_path, text).result
    assert (result.error, result.steps) == ("", 2)
    for told in ("evaluation_strategy", "save_safetensors", "Trainer's tokenizer", "compute_loss without"):
        assert any(note.startswith(told) for note in result.notes), told


def test_a_package_that_is_only_imported_ends_nothing(tmp_path: Path) -> None:
    text = """
import torch
import measures_not_here
from losses_not_here.parts import Perceptual, WEIGHTS
class Better(Perceptual):
    pass
chosen = {"none": None, "perceptual": Perceptual, "other": measures_not_here.fid}
"""
    result = trace_without_hub(tmp_path, text + STEPS).result
    assert (result.error, result.steps) == ("", 2)
    assert any(
        note.startswith("measures_not_here is not installed: the run ends where it is used (pip install") for note in result.notes
    )


@pytest.mark.parametrize(
    "use", ["Perceptual(net='vgg')", "Own()", "WEIGHTS['a']", "0.5 * WEIGHTS", "f'{WEIGHTS}'", "bool(WEIGHTS)"]
)
def test_a_package_that_is_not_here_ends_the_run_where_it_is_used(use: str, tmp_path: Path) -> None:
    text = f"""
import torch
from losses_not_here.parts import Perceptual, WEIGHTS
class Own(Perceptual):
    pass
{use}
"""
    result = trace_without_hub(tmp_path, text + STEPS).result
    assert result.error.startswith("ModuleNotFoundError: No module named 'losses_not_here'")
    assert "train.py:6" in result.error
    assert "pip install losses_not_here" in result.error


def test_eight_bit_weights_by_an_argument_are_refused_by_name(tmp_path: Path) -> None:
    text = "from transformers import AutoModelForCausalLM\nAutoModelForCausalLM.from_pretrained('gpt2', load_in_8bit=True)\n"
    assert "weights quantised with bitsandbytes 8-bit are not traced" in trace_without_hub(tmp_path, text).result.error


def test_a_name_that_nothing_stands_for_ends_the_run_where_it_is_used(tmp_path: Path) -> None:
    text = "import torch\nfrom transformers.utils.generic import working_or_temp_dir\n"
    result = trace_without_hub(tmp_path, text + STEPS).result
    assert (result.error, result.steps) == ("", 2)
    assert any(
        note.startswith("transformers.utils.generic.working_or_temp_dir is of an earlier version") for note in result.notes
    )
    error = trace_without_hub(tmp_path, text + "working_or_temp_dir()\n" + STEPS).result.error
    assert error.startswith("ImportError: cannot import name 'working_or_temp_dir' from 'transformers.utils.generic'")
    assert "train.py:3" in error
    assert "is here: install the version" in error


def test_an_import_of_a_name_that_no_table_holds_ends_nothing(tmp_path: Path) -> None:
    text = """
import torch, transformers
from transformers.trainer import nothing_like_it
from transformers.trainer_utils import get_parameter_names
from transformers.not_a_module import Something
class Own(Something):
    pass
try:
    import transformers.not_a_module
except ImportError:
    Something = None
assert Something is None
assert get_parameter_names.__module__ == "transformers.trainer_pt_utils"
assert not hasattr(transformers.trainer, "nothing_like_it")
try:
    from transformers.trainer import another_one
except ImportError:
    another_one = None
assert another_one is None
import transformers.models.gpt2.modeling_gpt2
transformers.modeling_gpt2.GPT2LMHeadModel
assert "LlamaTokenizer" in transformers._import_structure["models.llama"]
"""
    result = trace_without_hub(tmp_path, "import transformers.trainer_pt_utils\n" + text + STEPS).result
    assert (result.error, result.steps) == ("", 2)
    assert any(note.startswith("transformers.trainer.nothing_like_it is of another version") for note in result.notes)
    error = trace_without_hub(tmp_path, text + "nothing_like_it(1)\n" + STEPS).result.error
    assert error.startswith("ImportError: cannot import name 'nothing_like_it' from 'transformers.trainer'")


def test_arguments_that_left_functions_and_classes(tmp_path: Path) -> None:
    text = """
import torch
from torch.utils.data import Sampler
class ByPlace(Sampler):
    def __init__(self, data):
        super().__init__(data)
class ByName(Sampler):
    def __init__(self, data):
        super().__init__(data_source=data)
class Later(torch.optim.lr_scheduler.LRScheduler):
    def __init__(self, optimizer):
        super().__init__(optimizer, -1, False)
    def get_lr(self):
        return [0.1]
ByPlace([1]), ByName([1])
made = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), 0.1)
Later(made), torch.optim.lr_scheduler.StepLR(made, 1, verbose=True)
"""
    result = trace_without_hub(tmp_path, text + STEPS).result
    assert (result.error, result.steps) == ("", 2)
    for told in ("Sampler's data_source", "LRScheduler's verbose", "StepLR's verbose"):
        assert any(note.startswith(f"{told} is an argument of an earlier version") for note in result.notes), told


def test_what_was_taken_by_place_is_passed_by_name() -> None:
    told: list[str] = []
    call = Call(now={"old": "new"}, by_place=("a", "b", "c"))
    function = adapted(lambda a, *, b=1, c=2, new=0: (a, b, c, new), "mel", call, lambda name, _: told.append(name))
    assert function(5, 6, 7, old=8) == (5, 6, 7, 8)
    assert function(5, c=7) == (5, 1, 7, 0)
    assert told == ["mel's b, c", "mel's old"]
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        function(1, other=2)


def test_a_longer_context_keeps_the_base_of_the_rotations(tmp_path: Path) -> None:
    text = """
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4, vocab_size=100)
config.rope_scaling = {"type": "linear", "factor": 4.0}
assert config.rope_parameters["rope_theta"] == 10000.0
LlamaForCausalLM(config).cuda()
"""
    result = trace_without_hub(tmp_path, text + STEPS).result
    assert (result.error, result.steps) == ("", 2)


def test_a_tokenizer_has_the_methods_of_before(tmp_path: Path) -> None:
    text = """
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("gpt2")
assert tokenizer.batch_encode_plus(["a text"])["input_ids"] == tokenizer(["a text"])["input_ids"]
"""
    result = trace_without_hub(tmp_path, text + STEPS).result
    assert (result.error, result.steps) == ("", 2)
    assert any("batch_encode_plus is of an earlier version" in note for note in result.notes)


def test_spectra_of_real_numbers_are_pairs_and_arguments_are_read_by_old_names(tmp_path: Path) -> None:
    text = """
import torch
from transformers import TrainingArguments
window = torch.hann_window(64)
assert torch.stft(torch.randn(1, 640), 64, 16, 64, window).shape == (1, 33, 41, 2)
assert torch.stft(torch.randn(1, 640), 64, 16, 64, window, return_complex=True).shape == (1, 33, 41)
assert torch.stft(torch.randn(2, 640, device="cuda"), 64, window=window.cuda()).shape == (2, 33, 41, 2)
args = TrainingArguments(output_dir="out", report_to="none")
assert args.no_cuda is False and args.evaluation_strategy == args.eval_strategy
"""
    result = trace_without_hub(tmp_path, text + STEPS).result
    assert (result.error, result.steps) == ("", 2)
    assert any(note.startswith("stft without return_complex is") for note in result.notes)


def test_a_vocabulary_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]))
    text = f"""
from transformers import BertTokenizerFast
tokenizer = BertTokenizerFast(vocab_file={str(tmp_path / "vocab.txt")!r}, sep_token="[SEP]")
assert len(tokenizer) == 13 and tokenizer("a b")["input_ids"] == [2, 5, 6, 3]
"""
    result = trace_without_hub(tmp_path, text + STEPS).result
    assert (result.error, result.steps) == ("", 2)
    assert any(note.startswith("BertTokenizer's vocab_file is") for note in result.notes)


def test_arguments_of_trl_are_passed_where_they_have_the_name_of_today() -> None:
    told: list[str] = []
    known = {"dtype", "max_length"}
    given = {"torch_dtype": "bfloat16", "max_seq_length": 1024, "use_liger": True}
    assert today(given, known, lambda name, _: told.append(name)) == {"dtype": "bfloat16", "max_length": 1024, "use_liger": True}
    assert told == ["torch_dtype", "max_seq_length"]


def test_lightnings_cards_of_before_are_todays() -> None:
    from vramcast.tracing.execution.stand_ins.older_lightning import cards_today

    told: list[str] = []
    tell = lambda name, now: told.append(f"{name}: {now}")  # noqa: E731
    assert cards_today({"gpus": "0,", "max_epochs": 1}, tell) == {"devices": [0], "accelerator": "gpu", "max_epochs": 1}
    assert cards_today({"gpus": 2, "accelerator": "ddp"}, tell) == {"devices": 2, "accelerator": "gpu", "strategy": "ddp"}
    assert cards_today({"gpus": 0}, tell) == {"devices": 1, "accelerator": "cpu"}
    assert cards_today({"accelerator": "gpu", "devices": 1}, tell) == {"accelerator": "gpu", "devices": 1}
    assert len(told) == 4
    assert cards_today({"gpus": 1, "accelerator": "dp"}, tell) == {"devices": 1, "accelerator": "gpu", "strategy": "auto"}
    with pytest.raises(ValueError, match="'dp' over devices 2 left Lightning 2"):
        cards_today({"gpus": "2", "accelerator": "dp"}, tell)
    with pytest.raises(ValueError, match="'horovod' left Lightning 2"):
        cards_today({"gpus": 2, "distributed_backend": "horovod"}, tell)


def test_lightnings_command_line_of_before(tmp_path: Path) -> None:
    if find_spec("pytorch_lightning") is None:
        pytest.skip("pytorch_lightning is not installed")
    text = """
from argparse import ArgumentParser
import pkg_resources, torch
from pytorch_lightning import LightningModule, Trainer
assert pkg_resources.parse_version("2.0") > pkg_resources.parse_version("1.10")
class Own(LightningModule):
    def __init__(self, hparams):
        super().__init__()
        self.hparams = hparams
        self.layer = torch.nn.Linear(4, 4)
    def training_step(self, batch, number):
        return self.layer(batch).sum()
    def training_epoch_end(self, outputs):
        raise AssertionError(outputs)
    def on_train_batch_start(self, batch, batch_idx, dataloader_idx):
        assert dataloader_idx == 0
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
parser = Trainer.add_argparse_args(ArgumentParser())
given = parser.parse_args(["--gpus", "1", "--max_epochs", "1"])
trainer = Trainer.from_argparse_args(given, progress_bar_refresh_rate=0, checkpoint_callback=False, logger=False)
trainer.fit(Own(given), torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=2))
"""
    result = trace_without_hub(tmp_path, text).result
    assert (result.error, result.steps) == ("", 2)
