"""Tensor and expert parallelism by transformers' own plans, and sequence parallelism by torch's styles."""

import re
from typing import Any

import torch

from vramcast.errors import UnmodelledError
from vramcast.tracing.distribution import Distribution

_EXPERTS = frozenset({"moe_tp_experts", "packed_colwise", "packed_rowwise", "moe_identity_expert"})


def divide(model: Any, how: Distribution, mesh: Any, experts_mesh: Any) -> None:
    """Cut the weights of a model on meta over its tensor-parallel ranks, its experts over the expert-parallel ones.

    Raises UnmodelledError where the model's class has no plan, or this transformers no such parallelism.
    """
    tp_plan, ep_plan = _plans(model, how)
    if how.parallel.tp > 1:
        _check_heads(model, how.parallel.tp)
        embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
        tied = hasattr(head, "weight") and embedding is not None and head.weight is embedding.weight
        _over_ranks(model, how, mesh["tp"], tp_plan)
        if tied:
            head.weight = embedding.weight
    if how.parallel.ep > 1:
        from transformers.distributed.expert_parallel import apply_expert_parallelism

        apply_expert_parallelism(model, experts_mesh["ep"], mesh["tp"], ep_plan)


def _check_heads(model: Any, ranks: int) -> None:
    heads = getattr(model.config.get_text_config(), "num_key_value_heads", None)
    if heads and heads % ranks:
        fitting = ", ".join(str(n) for n in range(1, heads + 1) if heads % n == 0)
        raise UnmodelledError(f"{heads} key-value heads do not divide over tp {ranks} in transformers: tp can be {fitting}")


def _over_ranks(model: Any, how: Distribution, mesh: Any, plan: dict[str, str]) -> None:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    if not (how.sequence_parallel or how.loss_parallel):
        apply_tensor_parallelism(model, mesh, plan)
        return
    inner = {name: style for name, style in plan.items() if not name.startswith("lm_head")}
    if how.sequence_parallel:
        styles, inner = _sequence_styles(model, inner)
        parallelize_module(model, mesh, styles)
    apply_tensor_parallelism(model, mesh, inner)
    arriving = Shard(1) if how.sequence_parallel else Replicate()
    leaving = Shard(-1) if how.loss_parallel else Replicate()
    head = ColwiseParallel(input_layouts=arriving, output_layouts=leaving, use_local_output=not how.loss_parallel)
    if hasattr(model.lm_head, "weight"):  # not on the earlier stages of a pipeline
        parallelize_module(model, mesh, {"lm_head": head})


def _plans(model: Any, how: Distribution) -> tuple[dict[str, str], dict[str, str]]:
    """Module or parameter to style, as the model's class says it."""
    import transformers

    try:
        from transformers.distributed import DistributedConfig
    except ImportError:
        raise UnmodelledError(
            f"transformers {transformers.__version__} has no tensor parallelism for training (5.21 has): use vramcast train"
        ) from None
    parallel = how.parallel
    config = DistributedConfig(tp_size=parallel.tp, ep_size=parallel.ep, fsdp_size=parallel.dp * parallel.cp)
    try:
        tp_plan, ep_plan, _ = model._resolve_parallel_plans(config)
    except ValueError as reason:
        raise UnmodelledError(f"transformers does not divide {type(model).__name__} so: {reason}") from None
    # A tied head's weight is the embedding's, and a part of a pipeline has something else in the place of a head.
    own = {name for name, _ in model.named_parameters()}
    own |= {name for name, module in model.named_modules() if not isinstance(module, torch.nn.Identity)}
    return {name: style for name, style in tp_plan.items() if name in own}, ep_plan


def _sequence_styles(model: Any, plan: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The plan with activations cut along the sequence wherever no matrix is cut, and what of the plan stays as it is.

    Norms run on parts of the sequence, which are gathered before attention and feed-forward and scattered after them
    (torchtitan, models/llama3/infra/parallelize.py).
    """
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel

    rows, whole = Shard(1), Replicate()
    known = {"colwise": ColwiseParallel(), "rowwise": RowwiseParallel(output_layouts=rows)}
    embedding = f"{model.base_model_prefix}.embed_tokens"
    styles: dict[str, Any] = {}
    if model.get_input_embeddings() is not None:
        styles[embedding] = RowwiseParallel(input_layouts=whole, output_layouts=rows)
    rest: dict[str, str] = {}
    for name, style in plan.items():
        owner = re.sub(r"\.(weight|bias)$", "", name)
        if style in known and isinstance(model.get_submodule(owner), torch.nn.Linear):
            styles[owner] = known[style]
        elif style in _EXPERTS:
            raise UnmodelledError(f"sequence parallelism around experts ({name}: {style}) is not traced: leave --sp out")
        elif owner != embedding:
            rest[name] = style
    for block in {name.rpartition(".")[0] for name in styles if name != embedding}:
        styles[block] = (
            PrepareModuleInput(input_kwarg_layouts={"hidden_states": rows}, desired_input_kwarg_layouts={"hidden_states": whole})
            if "att" in block.rpartition(".")[2]
            else PrepareModuleInput(input_layouts=(rows,), desired_input_layouts=(whole,))
        )
    for name, module in model.named_modules():
        if "Norm" in type(module).__name__ and name.rpartition(".")[0] not in styles:
            styles[name] = SequenceParallel()
    return styles, rest
