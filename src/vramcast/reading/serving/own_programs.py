"""Programs of somebody's own that hand an engine its flags: ``python infer.py --model-path M --gpu-memory-utilization 0.9 ...``.

The engine is the one that alone has most of the flags; a program that trains, measures a server from outside, or has fewer than
two of its flags is none.
"""

import re
from collections.abc import Sequence

from vramcast.reading.serving.bare_flags import engine_of_bare_flags
from vramcast.reading.serving.engine_yaml import flags_of_mapping
from vramcast.reading.serving.flags import parsed_flags, words_of_flags
from vramcast.reading.serving.launch import Launch, LaunchContext
from vramcast.reading.serving.named_settings import settings_of

_MODELS = ("model", "model-path", "model-name-or-path", "model-id", "model-name", "base-model", "model-dir", "pretrained",
"checkpoint",
           "hf-model", "ckpt-dir", "model-tag")  # fmt: skip
_TRAINS = re.compile(
    r"-?-(?:learning[-_]rate|lr|per[-_]device[-_]train\S*|num[-_]train[-_]epochs|lora[-_]r(?:ank)?|deepspeed|micro[-_]batch[-_]size|epochs|"
    r"max[-_]steps|train[-_]\S+|actor\S*|rollout\S*|gradient\S*)(?:=.*)?", re.I
)  # fmt: skip
_MEASURES = re.compile(r"bench\w*serving\w*|benchmark_serving|bench_client|genai-perf|aiperf|guidellm|load_?test", re.I)
_OVERRIDE = re.compile(r"[+~]{0,2}[A-Za-z_][\w.-]{0,80}=\S{1,300}")
_OF_TRAINING = re.compile(
    r"(?:^|[._])(?:actor|rollout|trainer|algorithm|critic|generator|optim\w*|train\w*|reward\w*|ref)(?:[._]|$)"
)
_MOST = 400


def with_flags_of_engine(words: Sequence[str], held: LaunchContext) -> tuple[Launch, ...]:
    """The engine whose flags a Python program is given; () where it is no program of the kind."""
    plain = [word.rsplit("/", 1)[-1] for word in words[:_MOST]]
    start = next(
        (at for at, word in enumerate(plain[:14]) if word.startswith(("python", "pypy")) or word in ("torchrun", "uv")), -1
    )
    script = next(
        (word for word in plain[start + 1 : start + 12] if word.endswith(".py") or re.fullmatch(r"[a-z_]\w+(?:\.\w+)+", word)), ""
    )
    if not script and (own := [at for at, word in enumerate(plain[:14]) if word.endswith(".py")]):
        start, script = own[0], plain[own[0]]  # a program that names its own interpreter
    if start < 0 or not script or _MEASURES.search(script) or any(_TRAINS.fullmatch(word) for word in words):
        return ()
    rest = list(words[plain.index(script) + 1 :])
    engine = engine_of_bare_flags(rest, script)
    if not engine:
        return _overridden(rest, held.at(script))
    apart = parsed_flags(engine, rest).flags
    model = next((flag.values[0] for flag in apart if flag.name in _MODELS and flag.values), "")
    flags = words_of_flags(flag for flag in apart if flag.name not in _MODELS)
    return (Launch(engine=engine, model=model, flags=flags, where=held.at(script).where),) if model else ()


def _overridden(words: Sequence[str], held: LaunchContext) -> tuple[Launch, ...]:
    """The engine that Hydra's overrides describe by names of its arguments: two at least, beside the model.

    ``engine.max_model_len=8192 engine.gpu_memory_utilization=0.9 model.path=org/M``.
    A group alone (``model=qwen``) names a file beside the program, whose settings are asked for by the model that it leaves open.
    """
    pairs = [word.lstrip("+~").partition("=") for word in words if _OVERRIDE.fullmatch(word)]
    if not pairs or any(_OF_TRAINING.search(name) for name, _, _ in pairs):
        return ()
    found = settings_of({name: value for name, _, value in pairs})
    if found is None or not found[2]:
        return ()
    engine, settings, model = found
    flags = parsed_flags(engine, flags_of_mapping(settings)).flags
    return (Launch(engine=engine, model=model, flags=words_of_flags(flags), where=held.where),)
