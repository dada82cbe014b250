"""One rank of a distributed run: the meshes of its process groups, and the model cut, wrapped and put on its card."""

from typing import Any

import torch

from vramcast.tracing.distribution import Distribution
from vramcast.tracing.execution import data_parallel
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.sharding import patch_libraries, pretend_group
from vramcast.tracing.execution.tensor_parallel import divide


def distribute(model: torch.nn.Module, how: Distribution, session: Session) -> torch.nn.Module:
    """The model as the traced rank holds it, on its card. ``model`` is on meta where the rank holds less than the whole."""
    session.places.name_modules(model)
    mesh, experts_mesh = _mesh(how, session), _experts_mesh(how, session)
    if how.parallel.tp * how.parallel.ep > 1:
        with session.mode.quiet():
            divide(model, how, mesh, experts_mesh)
    data, device = _data_ranks(mesh, how), session.backend.device_type
    if how.sharding == "fsdp1":
        return data_parallel.flattened(model, how, data, device)
    if how.sharding == "fsdp2":
        model = data_parallel.shard_fully(model, how, data, experts_mesh)
    put_on_card(model, how, device)
    return data_parallel.copied(model, how, data) if how.sharding == "ddp" else model


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
    pretend_group(how.world, how.rank)
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
