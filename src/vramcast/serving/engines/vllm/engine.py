"""vLLM's answers: defaults filled in, then memory of each rank, cache plan, limits and start-up error."""

import msgspec

from vramcast.errors import QuestionError
from vramcast.hardware.accelerator import Accelerator
from vramcast.models.inventory import Model
from vramcast.models.layers import Attention, LatentAttention
from vramcast.quantity import Number, is_array, minimum
from vramcast.serving.engines.base import Answer, Resolved
from vramcast.serving.engines.expert_kernels import named_kernel, vllm_kernel
from vramcast.serving.engines.layouts import expert_group
from vramcast.serving.engines.options import Option
from vramcast.serving.engines.resolving import Defaults, context_of, opened, resolved
from vramcast.serving.engines.versions import Version, at
from vramcast.serving.engines.vllm import versions
from vramcast.serving.engines.vllm.answer import answer
from vramcast.serving.engines.vllm.fixed import DEFAULT_RANK
from vramcast.serving.engines.vllm.options import OPTIONS
from vramcast.serving.engines.vllm.profile import unsized_images
from vramcast.serving.precision import loaded_dtype
from vramcast.serving.storage import storage_of
from vramcast.workload import Parallel, Serving


class Vllm(msgspec.Struct, frozen=True):
    """The engine; see base.Engine for the two questions it answers."""

    name: str = "vllm"
    versions: tuple[str, ...] = versions.VERSIONS
    options: tuple[Option, ...] = OPTIONS

    def resolve(self, question: Serving, model: Model, card: Accelerator | None) -> Resolved:
        """The question with vLLM's defaults for the version, the card and the entry point filled in."""
        defaults, version, number = opened(self, question, model)
        _note_group(defaults, question.parallel)
        _check_context_ranks(defaults.values.get("decode_context_parallel_size") or 1, question.parallel.tp)
        context = context_of(question, model, defaults)
        _fill(defaults, number, card, context)
        defaults.take("block_size", _block(model), "default of CUDA backends")
        if defaults.values.get("enable_lora"):
            defaults.take("max_lora_rank", DEFAULT_RANK, "default of vllm/config/lora.py; slots grow with it")
        found = resolved(question, model, card, defaults, version=version, context=context)
        storage = storage_of(model, quant=question.quant, dtype=loaded_dtype(model, question.dtype))
        kernel, other = vllm_kernel(storage, card, number, defaults.values)
        said = named_kernel(model, storage, kernel, other, expert_group(question.parallel, defaults.values))
        more = unsized_images(model)
        if not (said or more):
            return found
        return msgspec.structs.replace(found, assumed=(*found.assumed, *said), unmodelled=(*found.unmodelled, *more))

    def forecast(self, resolved: Resolved) -> Answer:
        """Memory of each distinct rank, the cache plan (the smallest over ranks), the limits and the start-up error."""
        return answer(resolved)


def _note_group(defaults: Defaults, parallel: Parallel) -> None:
    """An ``--ep`` that is not the size of the group: vLLM only takes it as the switch."""
    group = expert_group(parallel, defaults.values)
    if parallel.ep not in (1, group):
        defaults.note("ep", group, f"--enable-expert-parallel deals experts out over all tp x dp = {group} ranks")


def _check_context_ranks(ranks: int, tp: Number) -> None:
    """Decode context parallelism uses the tensor-parallel ranks anew (vllm/config/parallel.py)."""
    if not is_array(tp) and tp % ranks:
        raise QuestionError(f"decode_context_parallel_size is {ranks}: vLLM wants it to divide tp, which is {tp}")


def _fill(defaults: Defaults, version: Version, card: Accelerator | None, context: Number) -> None:
    core = defaults.take("engine_core", at(version, versions.ENGINE_CORE), "default of that version")
    server = defaults.take("entry", "server", "vllm serve rather than the offline LLM class") == "server"
    seqs = defaults.take("max_num_seqs", versions.sequences(version, card), "default of that version and card")
    tokens = versions.batched_tokens(version, core, card, server=server, context=context)
    capped = minimum(tokens, seqs * context) if at(version, versions.CAPS_STEP) else tokens
    tokens = defaults.take("max_num_batched_tokens", capped, "default of that version and card")
    defaults.values["max_num_seqs"] = minimum(seqs, tokens)
    defaults.take("gpu_memory_utilization", versions.utilization(version), "default of that version")


def _block(model: Model) -> int:
    """Tokens per block of the attention kernels: 16, or 32 for latent attention beside states (platforms/interface.py)."""
    mixers = [mixer for block in model.blocks for mixer in block.mixers]
    latent = any(isinstance(mixer, LatentAttention) for mixer in mixers)
    return 32 if latent and any(not isinstance(mixer, Attention | LatentAttention) for mixer in mixers) else 16
