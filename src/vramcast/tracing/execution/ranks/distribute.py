"""One rank of a distributed run: the meshes of its process groups, and the model cut, wrapped and put on its card."""

from typing import Any

import torch

from vramcast.tracing.distribution import Distribution
from vramcast.tracing.execution.ranks import data_parallel
from vramcast.tracing.execution.ranks.pipeline import Pipeline, cut
from vramcast.tracing.execution.ranks.sharding import patch_libraries, pretend_group
from vramcast.tracing.execution.ranks.tensor_parallel import divide
from vramcast.tracing.execution.session import Session


def distribute(model: torch.nn.Module, how: Distribution, session: Session) -> torch.nn.Module:
    """The model as the traced rank holds it, on its card. ``model`` is on meta where the rank holds less than the whole."""
    session.places.name_modules(model)
    mesh, experts_mesh = _mesh(how, session), _experts_mesh(how, session)
    session.mesh = mesh
    if how.parallel.pp == 1:
        return _rank(model, model, how, session, experts_mesh)
    parts = cut(model, how)
    for part in parts:
        session.places.name_modules(part.model)
    chunks = [_rank(part, part.model, how, session, experts_mesh) for part in parts]
    return Pipeline(chunks, parts, how, mesh["pp"])


def _rank(whole: torch.nn.Module, model: Any, how: Distribution, session: Session, experts_mesh: Any) -> torch.nn.Module:
    """A model (or a part of a pipeline around it) divided, wrapped, and given memory."""
    mesh, device = session.mesh, session.backend.device_type
    if how.parallel.tp * how.parallel.ep > 1:
        with session.mode.quiet():
            divide(model, how, mesh, experts_mesh)
    if how.parallel.cp > 1:
        from accelerate.big_modeling import _attach_context_parallel_hooks

        _attach_context_parallel_hooks(model)  # attention is told that it is causal, without a mask
    data = _data_ranks(mesh, how)
    if how.sharding == "fsdp1":
        return data_parallel.flattened(whole, how, data, device)
    if how.sharding == "fsdp2":
        whole = data_parallel.shard_fully(whole, how, data, experts_mesh)
    put_on_card(whole, how, device)
    return data_parallel.copied(whole, how, data) if how.sharding == "ddp" else whole


def put_on_card(model: torch.nn.Module, how: Distribution, device: str) -> None:
    """Give memory to what is still on meta: weights on the host under its offload, buffers always on the card."""
    if not any(t.device.type == "meta" for t in (*model.parameters(), *model.buffers())):
        return
    weights = "cpu" if how.host_weights else device
    model._apply(lambda t: torch.empty_like(t, device=weights if isinstance(t, torch.nn.Parameter) else device))


def _mesh(how: Distribution, session: Session) -> Any:
    """All ranks as (pp, replicas, dp, cp, tp)."""
    from torch.distributed.device_mesh import init_device_mesh

    parallel = how.parallel
    pretend_group(session, how.world, how.rank)
    patch_libraries(session)
    sizes = (parallel.pp, parallel.replicate, parallel.dp // parallel.replicate, parallel.cp, parallel.tp)
    with session.mode.quiet():
        return init_device_mesh(session.backend.device_type, sizes, mesh_dim_names=("pp", "replicas", "dp", "cp", "tp"))


def _experts_mesh(how: Distribution, session: Session) -> Any:
    """The same ranks as the experts see them, (pp, ranks that hold the same experts, ep); None where experts are not divided."""
    if how.parallel.ep == 1:
        return None
    from torch.distributed.device_mesh import init_device_mesh

    parallel = how.parallel
    copies = how.world // (parallel.pp * parallel.ep)
    with session.mode.quiet():
        return init_device_mesh(
            session.backend.device_type, (parallel.pp, copies, parallel.ep), mesh_dim_names=("pp", "copies", "ep")
        )


def _data_ranks(mesh: Any, how: Distribution) -> Any:
    """The ranks that share weights or gradients: data- and context-parallel ones together, a row for each replica."""
    if how.parallel.replicate > 1:
        return mesh["replicas", "dp"]
    if how.parallel.cp > 1:
        return mesh["dp", "cp"]._flatten("data")
    return mesh["dp"]
