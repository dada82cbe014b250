"""Models as ``from_pretrained`` loads them, from a config.json alone."""

import tempfile
from collections.abc import Callable
from typing import Any

import torch
import transformers


def load(config: dict[str, Any], *, layers: int, by: Callable[..., Any] | None = None, **options: Any) -> Any:
    """The model of a config cut to some layers; ``by``: what loads it from a folder, transformers by default."""
    kind = getattr(transformers, config["architectures"][0])
    with tempfile.TemporaryDirectory() as folder:
        kind.config_class(**{**config, "num_hidden_layers": layers}).save_pretrained(folder)
        return (by or transformers.AutoModelForCausalLM.from_pretrained)(folder, **options)


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Rows of zeros of one length: memory does not depend on the words."""

    def __init__(self, seq: int) -> None:
        self.seq = seq

    def __len__(self) -> int:
        return 1024

    def __getitem__(self, _: int) -> dict[str, torch.Tensor]:
        ids = torch.zeros(self.seq, dtype=torch.long)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def tokenizer() -> Any:
    """The smallest tokenizer there is: some trainers want one and never use it."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    words = Tokenizer(WordLevel({"a": 0}, unk_token="a"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="a", eos_token="a")
