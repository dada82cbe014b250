"""Deep logs written from shallow ones, at the real widths of published models, against whole traces event by event.

    python benchmarks/tracing/depth_at_width.py      (needs the [torch] extra; some minutes)

Each row traces every layer, then three small depths, and compares the two logs: the sequence of sizes and both peaks.
"""

import time

import msgspec

from vramcast.models.reading import read_model
from vramcast.tracing.allocator.replay import replay
from vramcast.tracing.configs import config_of
from vramcast.tracing.extrapolation.depth import same_sequence, shallow_depths
from vramcast.tracing.request import TraceRequest
from vramcast.tracing.run import Tracer
from vramcast.units import gib
from vramcast.workload import Adapter

ROWS: list[tuple[str, dict[str, object]]] = [
    ("meta-llama/Llama-3.1-8B", {"clip_norm": 1.0}),
    ("meta-llama/Llama-3.1-8B", {"checkpointing": "full", "autocast": "bfloat16", "param_dtype": "float32", "accumulate": 2}),
    ("meta-llama/Llama-3.1-8B", {"optimizer": "adamw_loop"}),
    ("meta-llama/Llama-3.1-8B", {"optimizer": "adafactor"}),
    ("meta-llama/Llama-3.1-8B", {"adapter": Adapter(rank=16), "autocast": "bfloat16", "checkpointing": "full"}),
    ("meta-llama/Llama-3.1-8B", {"task": "generate", "new_tokens": 3}),
    ("meta-llama/Llama-3.1-70B", {"checkpointing": "full"}),
    ("Qwen/Qwen3-30B-A3B", {"experts": "grouped_mm"}),
]


def main() -> None:
    """Print a line per row."""
    with Tracer() as tracer:
        for name, options in ROWS:
            model = read_model(name)
            request = TraceRequest(config=config_of(model, name)[0], seq=4096, **options)  # type: ignore[arg-type]
            print(f"{name:26} {_compared(tracer, request, model.layers, options)}", flush=True)


def _compared(tracer: Tracer, request: TraceRequest, layers: int, options: dict[str, object]) -> str:
    depths = shallow_depths("d" * layers)
    started = time.perf_counter()
    few = tracer.trace(msgspec.structs.replace(request, layers=layers, depths=depths))
    middle = time.perf_counter()
    whole = tracer.trace(request)
    ended = time.perf_counter()
    if few.error or whole.error:
        return few.error or whole.error
    equal = "equal" if same_sequence(few.log, whole.log) and replay(few.log) == replay(whole.log) else "DIFFERENT"
    peak = gib(replay(whole.log).peak_allocated_bytes)
    return f"{equal} from {few.depths}, {peak}, {middle - started:.1f} s against {ended - middle:.1f} s, {options}"


if __name__ == "__main__":
    main()
