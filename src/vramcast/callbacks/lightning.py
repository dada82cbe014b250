"""The callback of Lightning's Trainer: peak beside forecast. What a module trains is not written anywhere, so it is said."""

from os import PathLike
from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from vramcast.asking.asked import Asked
from vramcast.callbacks.beside import PeakComparison, Watched
from vramcast.errors import QuestionError
from vramcast.models.inventory import Model
from vramcast.workload import Training

_COMPUTE = {"bf16": "bfloat16", "16": "float16", "32": "float32"}


class LightningPeak(Callback):  # type: ignore[misc]
    """Tells the real peak beside the forecast when fitting ends; ``cases`` names a file that a case is appended to.

    ``model``: the model's name; None takes the config of the module's own transformers model (``module.model``). Other words are
    those of ``vramcast.train`` (method, rank, optimizer, checkpointing ...) and win over what the Trainer tells: accumulation,
    precision, cards, and the longest batch that a step had.
    """

    def __init__(
        self, model: str | None = None, *, cases: str | PathLike[str] | None = None, gpu: str | None = None, **words: Any
    ) -> None:
        super().__init__()
        self.model, self.words = model, words
        self.watched = Watched(cases=cases, gpu=gpu)
        self.beside: PeakComparison | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Count from here on."""
        self.watched.begin()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """See the batch."""
        self.watched.saw(batch[0] if isinstance(batch, tuple | list) and batch else batch)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Ask the run that was, on the first process alone."""
        if trainer.is_global_zero:
            self.beside = self.watched.end(lambda: self._question(trainer, pl_module))

    def _question(self, trainer: Any, module: Any) -> tuple[Asked[Training], Model]:
        from vramcast.asking.training import training_question
        from vramcast.models.reading import read_model
        from vramcast.models.sources.described import from_config

        cards, length, rows = self.watched.card(), self.watched.length, self.watched.rows
        words: dict[str, Any] = {"framework": "pytorch", "accumulate": trainer.accumulate_grad_batches}
        words |= {"seq": length} if length else {}
        words |= {"micro_batch": rows} if rows else {}
        words |= {"gpu": f"{cards}x{trainer.world_size}" if trainer.world_size > 1 else cards} if cards else {}
        words |= _precision(str(trainer.precision)) | _sharding(trainer.strategy)
        if self.model:
            inventory = read_model(self.model)
        else:
            inventory = from_config(_config(module), name=type(module).__name__, where="the module's model")
        return training_question(inventory.id, **{**words, **self.words}), inventory


def _config(module: Any) -> dict[str, Any]:
    config = getattr(getattr(module, "model", module), "config", None)
    if config is None or not hasattr(config, "to_dict"):
        raise QuestionError("the module holds no transformers model under .model: name it, LightningPeak('Qwen/Qwen3-8B')")
    found: dict[str, Any] = config.to_dict()
    return found


def _precision(text: str) -> dict[str, Any]:
    """``bf16-mixed``: weights in float32, matmuls in bfloat16; ``bf16-true``: both in bfloat16."""
    kind, _, how = text.partition("-")
    compute = _COMPUTE.get(kind)
    if compute is None:
        return {}
    return {"compute_dtype": compute, "param_dtype": compute if how == "true" else "float32"}


def _sharding(strategy: Any) -> dict[str, Any]:
    """FSDP's strategies, and DeepSpeed's by its stage."""
    name = type(strategy).__name__
    if "DeepSpeed" in name:
        config = getattr(strategy, "config", None) or {}
        return {"zero": int((config.get("zero_optimization") or {}).get("stage", 2))}
    return {"fsdp": 2 if "ModelParallel" in name else 1} if "FSDP" in name or "ModelParallel" in name else {}
