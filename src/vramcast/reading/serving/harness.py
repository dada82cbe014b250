"""Evaluation programs that start an engine themselves: lm-evaluation-harness and LightEval, whose engine takes ``key=value,...``.

Sources: lm_eval/models/vllm_causallms.py and sglang_causallms.py (arguments are those of the engine, ``pretrained`` the model),
lighteval/models/vllm/vllm_model.py (``model_name``, ``max_model_length``).
"""

import re
from collections.abc import Sequence

from vramcast.reading.serving.flags import parsed_flags, words_of_flags
from vramcast.reading.serving.launch import Launch, LaunchContext

_ENGINES = {"vllm": "vllm", "vllm-vlm": "vllm", "sglang": "sglang"}
_PROGRAMS = ("lm_eval", "lm-eval", "lighteval", "lm_eval.__main__")
_MODELS = ("pretrained", "model_name", "model", "model_parallel_model", "model_path")
_NAMES = {
    "max_model_length": "max_model_len", "max_length": "max_model_len", "tp_size": "tensor_parallel_size",
    "dp_size": "data_parallel_size",
}  # fmt: skip
_OWN = ("max_gen_toks", "batch_size", "max_batch_size", "add_bos_token", "generation_parameters", "generation_size",
        "use_chat_template", "override_chat_template", "think_end_token", "enable_thinking", "chat_template_args", "seed",
        "revision")  # fmt: skip
_PAIR = re.compile(r"([A-Za-z_]\w{0,60})=([^,{}]*|\{[^{}]*\})(?:,|$)")


def evaluated(words: Sequence[str], held: LaunchContext) -> tuple[Launch, ...]:
    """The engine that an evaluation program starts, by its own words; () for any other command."""
    plain = [word.rsplit("/", 1)[-1] for word in words]
    place = next((at for at, word in enumerate(plain[:12]) if word in _PROGRAMS), -1)
    if place < 0:
        return ()
    rest = list(words[place + 1 :])
    engine = _ENGINES.get(rest[0], "") if rest else ""
    pairs = rest[1] if engine and len(rest) > 1 else ""
    for flag, following in zip(rest, [*rest[1:], ""], strict=True):
        name, _, value = flag.partition("=")
        if name == "--model":
            engine = _ENGINES.get(value or following, "")
        elif name in ("--model_args", "--model-args"):
            pairs = flag.partition("=")[2] or following
    if not engine:
        return ()
    given: dict[str, str] = dict(_PAIR.findall(pairs))
    model = next((given[name] for name in _MODELS if given.get(name)), "")
    flags = [
        f"--{_NAMES.get(key, key).replace('_', '-')}={value}" for key, value in given.items() if key not in (*_MODELS, *_OWN)
    ]
    flags += ["--entry=offline"] if engine == "vllm" else []
    return (Launch(engine=engine, model=model, flags=words_of_flags(parsed_flags(engine, flags).flags), where=held.where),)
