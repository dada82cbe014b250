"""What programs of earlier years ask of tokenizers, towers, arguments and the hub, as far as no memory hangs on it."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from small_scripts import STEPS, trace_without_hub

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

_TOKENIZER = """
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("FacebookAI/roberta-base")
first, second = tokenizer.encode("a page of text", add_special_tokens=False), list(range(5, 45))
pair = tokenizer.prepare_for_model(first, second, truncation="only_second", max_length=20, padding=False)
whole = tokenizer("a page of text", "a page", truncation="only_second", max_length=20)
count = len(first)
assert len(pair["input_ids"]) == 20 and pair["input_ids"][:count + 3] == whole["input_ids"][:count + 3], (pair, whole)
assert tokenizer.prepare_for_model(first)["input_ids"] == tokenizer("a page of text")["input_ids"]
"""

_TOWER = """
from transformers import CLIPTextModel
tower = CLIPTextModel.from_pretrained("openai/clip-vit-large-patch14")
assert tower.config.hidden_size == 768
assert sum(each.numel() for each in tower.parameters()) == 123_060_480
"""

_ARGUMENTS = """
from dataclasses import dataclass
from transformers import TrainingArguments
@dataclass
class Own(TrainingArguments):
    margin: float = 0.5
made = Own(output_dir="out", evaluation_strategy="steps", margin=0.25, report_to=[], use_cpu=True)
assert (made.eval_strategy.value, made.margin) == ("steps", 0.25)
"""

_HUB = """
from huggingface_hub import HfApi, create_repo, upload_folder
assert create_repo(repo_id="mine", exist_ok=True).repo_id == "you/mine"
HfApi.whoami(HfApi())
import huggingface_hub.utils._http as http
def never(*_, **__):
    raise AssertionError("a request was made")
http.get_session = http.http_backoff = never
assert HfApi().upload_folder(repo_id="you/mine", folder_path=".").commit_url.startswith("https://huggingface.co/you/mine")
assert HfApi().upload_file(repo_id="you/mine", path_or_fileobj=b"", path_in_repo="a", run_as_future=True).done()
try:
    create_repo(repo_id="a/b/c")
except ValueError:
    pass
else:
    raise AssertionError
"""

_REMOTE = """
from transformers import AutoConfig, AutoModelForCausalLM
made = AutoModelForCausalLM.from_pretrained("Qwen/Qwen-1_8B", trust_remote_code=True, torch_dtype=torch.bfloat16)
assert AutoConfig.from_pretrained("Qwen/Qwen-1_8B", trust_remote_code=True).hidden_size == 2048
assert "QWenBlock" in {type(each).__name__ for each in made.modules()}
"""

_TOLD = (
    "prepare_for_model is of an earlier version",
    "openai/clip-vit-large-patch14 is not here",
    "evaluation_strategy is an argument of an earlier version",
    "nothing was sent to the hub",
    "Qwen/Qwen-1_8B's class is code of its repository",
)


def test_ways_of_before_go_on_and_are_told(tmp_path: Path) -> None:
    if find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    result = trace_without_hub(tmp_path, _TOKENIZER + _TOWER + _ARGUMENTS + _HUB + "import torch" + _REMOTE + STEPS).result
    assert (result.error, result.steps) == ("", 2)
    assert [told for told in _TOLD if not any(told in note for note in result.notes)] == [], result.notes
