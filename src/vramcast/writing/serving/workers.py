"""The lines of a server with prefill and decode apart: a prefill worker's, a decode worker's and the router's.

Flags: vLLM 0.33 (config/kv_transfer.py: NixlConnector, kv_producer and kv_consumer), SGLang 0.5.23 (--disaggregation-mode, its
router with --pd-disaggregation). TensorRT-LLM's workers are told apart by a YAML that ``trtllm-serve disaggregated`` reads.
"""

import json
from collections.abc import Sequence

from vramcast.errors import UnmodelledError
from vramcast.workload import Serving
from vramcast.writing.serving.lines import command_of

_ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
_WIDEST = 100


def workers_of(prefill: Serving, decode: Serving, *, prefills: int, decodes: int, width: int = _WIDEST) -> list[str]:
    """The lines, a comment above each: how many workers like it. Read back, each asks the same worker's question.

    Raises UnmodelledError for an engine that has no such workers.
    """
    found: list[str] = []
    for role, question, count in (("prefill", prefill, prefills), ("decode", decode, decodes)):
        found += [f"# {count} {role} worker{'s' if count > 1 else ''} like this", *_worker(role, question, width)]
    return [*found, *_router(decode.engine, prefills, decodes)]


def _worker(role: str, question: Serving, width: int) -> list[str]:
    lines = command_of(question, width=width)
    if question.engine == "vllm":
        connector = json.dumps({"kv_connector": "NixlConnector", "kv_role": _ROLES[role]})
        return _with(lines, f"--kv-transfer-config '{connector}'")
    if question.engine == "sglang":
        return _with(lines, f"--disaggregation-mode {role}")
    if question.engine == "tensorrt_llm":
        kind = "context" if role == "prefill" else "generation"
        return [*lines, f"# under {kind}_servers in the YAML of: trtllm-serve disaggregated -c disagg.yaml"]
    raise UnmodelledError(f"{question.engine} has no prefill and decode workers")


def _with(lines: Sequence[str], flag: str) -> list[str]:
    """The line with one more flag at its end."""
    return [*lines[:-1], f"{lines[-1]} \\", f"  {flag}"]


def _router(engine: str, prefills: int, decodes: int) -> list[str]:
    if engine != "sglang":
        return [f"# and a proxy that sends prompts to the {prefills} and their caches to the {decodes}"]
    to = [f"  --prefill http://PREFILL_{place}:30000 \\" for place in range(1, prefills + 1)]
    to += [f"  --decode http://DECODE_{place}:30000 \\" for place in range(1, decodes + 1)]
    return ["# the router", "python -m sglang_router.launch_router --pd-disaggregation \\", *to[:-1], to[-1].removesuffix(" \\")]
