"""CUDA graphs of SGLang: decode batches up to the requests that may run, and prefill pieces where the engine captures them.

Sizes are those the engine's own reserve is made of (arg_groups/memory_hook.py): 2 MiB for each sequence of the largest batch and
8 for each prefill size. No batch exceeds the pool of requests (model_executor/cuda_graph_runner.py get_batch_sizes_to_capture),
and models that see, pipelines and DP attention have no prefill pieces (server_args.py _handle_piecewise_cuda_graph).
"""

from vramcast.ledger import Term
from vramcast.quantity import Number, bytes_, is_nothing, minimum, named
from vramcast.serving.engines.base import Fitted, Resolved, parse_version
from vramcast.serving.engines.sglang.fraction import captures_prefill, is_latent, prefill_graphs_mib
from vramcast.units import MiB

MIB_PER_SEQUENCE = 2
# where the card shares the host's memory, what kernels compiled while capturing leave in the process counts too
HOST_MIB = Fitted(1536, 3, "starts on a DGX Spark, 1.6 to 2.7 GiB")
_SOURCE = "sglang/srt/arg_groups/memory_hook.py"


def graphs_term(resolved: Resolved) -> Term:
    """Memory of the captured graphs of one rank."""
    options = resolved.options
    if options.get("disable_cuda_graph"):
        return Term(name="graphs", bytes=0, why="disable_cuda_graph: none are captured", source=_SOURCE)
    running = options.get("max_running_requests")
    batch = options["cuda_graph_max_bs"] if running is None else minimum(options["cuda_graph_max_bs"], running)
    size = named(batch, "sequences of the largest batch") * bytes_(MIB_PER_SEQUENCE * MiB)
    prefill = _prefill_mib(resolved)
    size += bytes_(prefill * MiB, "of prefill sizes") if not is_nothing(prefill) else 0
    if resolved.card is None or not resolved.card.unified:
        return Term(name="graphs", amount=size, source=_SOURCE)
    size += bytes_(HOST_MIB.value * MiB, HOST_MIB.why)
    return Term(name="graphs", amount=size, source=_SOURCE, slack=HOST_MIB.slack(HOST_MIB.value * MiB))


def _prefill_mib(resolved: Resolved) -> Number:
    """MiB of the captured prefill sizes; 0 where the engine captures none."""
    version = parse_version(resolved.version, "sglang")
    if not captures_prefill(resolved.model, version, resolved.options, resolved.question.parallel.pp):
        return 0
    return prefill_graphs_mib(resolved.options["chunked_prefill_size"], latent=is_latent(resolved.model))
