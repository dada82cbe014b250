"""The session of a real run: answers what the step's code asks of a tracing session, and records nothing."""

import gc
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any


class BareSession:
    """Stands where a tracing session stands, on a device that exists."""

    def __init__(self, device: str) -> None:
        self.backend = SimpleNamespace(device_type=device)
        self.mode = SimpleNamespace(quiet=nullcontext)
        self._vocabulary = 1

    def start_loaded(self, model: Any) -> None:
        """Nothing is recorded of how the model came to be."""

    def label_model(self, model: Any) -> None:
        """Only the size of its vocabulary is of interest."""
        self._vocabulary = model.config.get_text_config().vocab_size

    def label_inputs(self, batch: dict[str, Any]) -> None:
        """Fill the batch with random tokens: experts are routed to as by text, where one token repeated chooses the same few."""
        batch["input_ids"].random_(0, self._vocabulary)

    def collect(self) -> None:
        """Free what only reference cycles keep."""
        gc.collect()
