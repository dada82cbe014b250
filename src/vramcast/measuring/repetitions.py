"""What one repetition of a case runs: an optimizer step, or a prompt and the tokens after it. Each returns its times."""

from collections.abc import Callable
from typing import Any

from vramcast.errors import unknown_name
from vramcast.measuring.bare import BareSession
from vramcast.measuring.quantized import four_bit_linears
from vramcast.measuring.request import MeasureRequest

Repetition = Callable[[], dict[str, float]]
Clock = Callable[[], float]


def prepare(request: MeasureRequest, clock: Clock) -> tuple[int, Repetition]:
    """Build the model on its device; returns its parameters and what one repetition runs."""
    session: Any = BareSession(request.device)
    model = _build(request, session)
    session.label_model(model)
    parameters = sum(p.numel() for p in model.parameters())
    model = _spread(model, request, session)
    if request.compiled:
        model.compile()
    kind = _training if request.step.task == "train" else _generation
    return parameters, with_kernels(kind(model, request, session, clock), request.step.attention_kernels)


def with_kernels(repeat: Repetition, names: tuple[str, ...]) -> Repetition:
    """The repetition with SDPA's kernels limited to these, tried in this order; () leaves torch its own choice."""
    if not names:
        return repeat
    from torch.nn.attention import SDPBackend, sdpa_kernel

    known = {"flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION", "math": "MATH"}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise unknown_name("SDPA kernel", unknown[0], known)

    def repeat_so() -> dict[str, float]:
        with sdpa_kernel([getattr(SDPBackend, known[name]) for name in names], set_priority=True):
            return repeat()

    return repeat_so


def _build(request: MeasureRequest, session: Any) -> Any:
    """The request's model. 4-bit weights are quantised while it is built, and everything after that follows PEFT's own recipe."""
    import msgspec

    from vramcast.tracing.execution import checkpointing, models
    from vramcast.tracing.execution.adapters import add_adapter

    step = request.step
    if not step.quant:
        return models.build(step, session)
    bare = msgspec.structs.replace(step, quant=None, adapter=None, checkpointing="none")
    with four_bit_linears(step.quant, models.dtype_of(step.autocast or step.param_dtype)):
        model: Any = models.build(bare, session)
    model.is_loaded_in_4bit = True
    if step.adapter is not None:
        model.requires_grad_(False)
        model = add_adapter(model, step.adapter, kbit=True)
    checkpointing.enable(model, step.checkpointing)
    return model.train(step.task == "train")


def _spread(model: Any, request: MeasureRequest, session: Any) -> Any:
    """The model over the ranks of this run: FSDP2 where asked for, else DDP's copies."""
    how = request.step.distribution
    if how.sharding == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh

        from vramcast.tracing.execution.ranks.data_parallel import shard_fully

        return shard_fully(model, how, init_device_mesh(session.backend.device_type, (request.ranks,)))
    if request.ranks > 1:
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(model)
    return model


def _training(model: Any, request: MeasureRequest, session: Any, clock: Clock) -> Repetition:
    from vramcast.tracing.execution import recipes, steps

    step = request.step
    optimizer = recipes.make_optimizer(step.optimizer, model)
    tokens = step.micro_batch * step.seq * step.accumulate * request.ranks

    def repeat() -> dict[str, float]:
        start = clock()
        steps.optimizer_step(model, optimizer, step, session)
        spent = clock() - start
        return {"step_s": spent, "tokens_per_s": tokens / spent}

    return repeat


def _generation(model: Any, request: MeasureRequest, session: Any, clock: Clock) -> Repetition:
    """Greedy decoding by hand, as transformers' own loop does it: the prompt at once, then token by token with the cache."""
    import torch

    from vramcast.tracing.execution import steps

    step, cached = request.step, steps.cache_name(model)

    def repeat() -> dict[str, float]:
        prompt = {"input_ids": torch.zeros(step.micro_batch, step.seq, dtype=torch.long, device=request.device)}
        session.label_inputs(prompt)
        times = [clock()]
        with torch.inference_mode(), steps.autocast(step, request.device):
            ids, cache = prompt["input_ids"], None
            for _ in range(step.new_tokens):
                output = model(input_ids=ids, use_cache=True, logits_to_keep=1, **{cached: cache})
                ids, cache = output.logits[:, -1:].argmax(-1), getattr(output, cached)
                del output
                times.append(clock())
        return _serving_times(times, step.micro_batch)

    return repeat


def _serving_times(times: list[float], sequences: int) -> dict[str, float]:
    """Time to the first token, per further token, and generated tokens per second of all sequences over the whole run."""
    found = {"ttft_s": times[1] - times[0], "run_s": times[-1] - times[0]}
    further = len(times) - 2
    if further:
        found["tpot_s"] = (times[-1] - times[1]) / further
    return found | {"tokens_per_s": sequences * (further + 1) / found["run_s"]}
