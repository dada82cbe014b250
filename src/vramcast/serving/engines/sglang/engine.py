"""SGLang's answers: a fraction of what is free before the weights, less the weights, is cache; the rest serves all else."""

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.inventory import Model
from vramcast.serving.engines.base import Answer, Resolved, Version
from vramcast.serving.engines.layouts import named_kernel, sglang_kernel
from vramcast.serving.engines.options import Option
from vramcast.serving.engines.resolving import Defaults, context_of, opened, resolved
from vramcast.serving.engines.sglang import versions
from vramcast.serving.engines.sglang.answer import answer
from vramcast.serving.engines.sglang.drafts import draft_beside, drafts_itself, uncounted_draft
from vramcast.serving.engines.sglang.fraction import (
    captures_prefill,
    default_fraction,
    is_latent,
    prefill_graphs_mib,
    share_of_seeing,
    tier_of,
)
from vramcast.serving.engines.sglang.options import OPTIONS
from vramcast.serving.weights import loaded_dtype, storage_of
from vramcast.workload import Serving


class Sglang(msgspec.Struct, frozen=True):
    """The engine; see base.Engine for the two questions it answers."""

    name: str = "sglang"
    versions: tuple[str, ...] = versions.VERSIONS
    options: tuple[Option, ...] = OPTIONS

    def resolve(self, question: Serving, model: Model, card: Accelerator | None) -> Resolved:
        """The question with SGLang's defaults for the version and the card filled in."""
        defaults, version, number = opened(self, question, model)
        _fill(defaults, question, model, number, card)
        context = context_of(question, model, defaults)
        storage = storage_of(model, quant=question.quant, dtype=loaded_dtype(model, question.dtype, card))
        kernel = sglang_kernel(storage, card, defaults.values)
        draft = draft_beside(model, defaults.values)
        defaults.assumed += (*named_kernel(model, storage, kernel, None, question.parallel.tp), *(draft.assumed if draft else ()))
        found = resolved(question, model, card, defaults, version=version, context=context)
        more = uncounted_draft(model, defaults.values, draft)
        return msgspec.structs.replace(found, unmodelled=(*found.unmodelled, *more)) if more else found

    def forecast(self, resolved: Resolved) -> Answer:
        """Memory of each distinct rank, the pools, the limits and the start-up error."""
        return answer(resolved)


def _fill(defaults: Defaults, question: Serving, model: Model, version: Version, card: Accelerator | None) -> None:
    tier, parallel = tier_of(card, version), question.parallel
    because = "default of that card's size"
    chunk = defaults.take("chunked_prefill_size", tier.chunk, because)
    batch = defaults.take("cuda_graph_max_bs", tier.batch_tp4 if parallel.tp >= 4 else tier.batch, because)
    dp = defaults.values.get("dp_size") or 1 if defaults.values.get("enable_dp_attention") else 1
    captures = captures_prefill(model, version, defaults.values, parallel.pp)
    fraction = default_fraction(
        card,
        version,
        tp=parallel.tp,
        pp=parallel.pp,
        chunk=chunk,
        batch=batch,
        prefill=prefill_graphs_mib(chunk, latent=is_latent(model)) if captures else 0,
        draft=drafts_itself(model, defaults.values) or bool(defaults.values.get("speculative_draft_model_path")),
        dp=dp,
    )
    fraction *= share_of_seeing(model, version) if card else 1
    defaults.take("mem_fraction_static", fraction, "formula of that version: memory kept for activations and graphs")
    defaults.take("page_size", 1, "default")
