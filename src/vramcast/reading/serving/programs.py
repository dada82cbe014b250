"""Which engine the words of a command start: by program, Python module or container image; what wraps it is taken off.

Sources of the names: each engine's own console scripts and modules (vLLM 0.33, SGLang 0.5, llama.cpp's tools/, trtllm-serve,
text-generation-launcher, lmdeploy, KTransformers' server and local_chat, mlx-lm d78bf58e, LightLLM's server.api_server,
Dynamo's backends, KServe's huggingfaceserver).
"""

import re
from collections.abc import Sequence

import msgspec

from vramcast.reading.shell.script import ASSIGNMENT
from vramcast.reading.shell.variables import open_names

_PROGRAMS = {
    "llama-server": "llama_cpp", "llama-cli": "llama_cpp", "llama-bench": "llama_cpp", "llama-run": "llama_cpp",
    "llama-perplexity": "llama_cpp", "llamafile": "llama_cpp", "koboldcpp": "llama_cpp", "koboldcpp.py": "llama_cpp",
    "llama-speculative": "llama_cpp", "llama-mtmd-cli": "llama_cpp", "llama-embedding": "llama_cpp",
    "ik-llama-server": "llama_cpp", "ik_llama-server": "llama_cpp", "ik-llama-cli": "llama_cpp",
    "trtllm-serve": "tensorrt_llm", "text-generation-launcher": "tgi", "tritonserver": "triton", "local_chat.py": "ktransformers",
    "ktransformers": "ktransformers", "mlx_lm.server": "mlx", "mlx_lm.generate": "mlx", "mlx_lm.chat": "mlx",
    "mlx_vlm.server": "mlx", "mlx_vlm.generate": "mlx", "mlx-openai-server": "mlx", "mlx-omni-server": "mlx",
}  # fmt: skip
_MODULES = {
    "vllm.entrypoints.openai.api_server": "vllm", "vllm.entrypoints.api_server": "vllm", "vllm": "vllm",
    "lightllm.server.api_server": "lightllm",
    "vllm.entrypoints.cli.main": "vllm", "sglang.launch_server": "sglang", "sglang": "sglang", "dynamo.vllm": "vllm",
    "dynamo.sglang": "sglang", "dynamo.trtllm": "tensorrt_llm", "huggingfaceserver": "vllm", "llama_cpp.server": "llama_cpp",
    "ktransformers.server.main": "ktransformers", "ktransformers.local_chat": "ktransformers", "lmdeploy": "lmdeploy",
    "mlx_lm.server": "mlx", "mlx_lm.generate": "mlx", "mlx_lm.chat": "mlx", "mlx_vlm.server": "mlx", "mlx_vlm.generate": "mlx",
    "dynamo.sglang.worker": "sglang", "dynamo.sglang.decode_worker": "sglang", "sglang_router.launch_server": "sglang",
}  # fmt: skip
# Programs that take a word before the model, and the words under which they start an engine.
_VERBS = {
    "vllm": ("vllm", ("serve", "run-batch", "run")),
    "ollama": ("ollama", ("run", "pull", "show", "serve", "create")),
    "sglang": ("sglang", ("serve", "launch_server")),
    "lmdeploy": ("lmdeploy", ("serve", "chat")),
    "ktransformers": ("ktransformers", ("serve", "run", "chat")),
    "kt": ("ktransformers", ("run", "chat")),
    "mlx_lm": ("mlx", ("server", "generate", "chat")),
}
_MORE_VERBS = ("api_server", "gradio", "serve")
# Fragments of image names, most telling first, and the engine that the image's own entry point starts.
_IMAGES = (
    ("vllm-openai", "vllm"), ("vllmserver", "vllm"), ("huggingfaceserver", "vllm"), ("rocm/vllm", "vllm"), ("vllm-cpu", "vllm"),
    ("llm-d-cuda", "vllm"), ("llm-d/llm-d", "vllm"), ("vllm-serve", "vllm"), ("vllm-runtime", "vllm"), ("sglang", "sglang"),
    ("llama.cpp", "llama_cpp"), ("llama-cpp", "llama_cpp"), ("llama-swap", ""), ("text-generation-inference", "tgi"),
    ("llama-server", "llama_cpp"),
    ("lmdeploy", "lmdeploy"), ("ollama/ollama", "ollama"), ("tensorrt-llm", "tensorrt_llm"), ("ktransformers", "ktransformers"),
    ("tritonserver", "triton"), ("vllm", "vllm"),
)  # fmt: skip
# Flags that name an engine where its image does not: the flag of the model, and others of which one must stand beside it.
_OWN_FLAGS = (
    ("tgi", "--model-id", ("--num-shard", "--max-total-tokens", "--max-input-length", "--max-input-tokens",
     "--max-batch-prefill-tokens", "--max-batch-total-tokens", "--max-concurrent-requests")),
    ("vllm", "--model", ("--max-model-len", "--gpu-memory-utilization", "--tensor-parallel-size", "--served-model-name",
     "--max-num-seqs", "--enable-auto-tool-choice", "--max-num-batched-tokens")),
    ("sglang", "--model-path", ("--mem-fraction-static", "--tp-size", "--tp", "--context-length", "--chunked-prefill-size")),
    ("llama_cpp", "-m", ("-ngl", "--n-gpu-layers", "-c", "--ctx-size")),
)  # fmt: skip
_BUILDS = re.compile(
    r"^(llama-(?:server|cli|bench))-(?:npu|cuda|vulkan|hip|rocm|sycl|cpu|metal|b\d{4,5}|[0-9a-f]{7,12})$"
)  # one program, by its back end or its build
_FIRST_FLAGS, _SURE = ("--host", "--port", "--dtype", "--trust-remote-code"), 3
SHELLS = ("sh", "bash", "zsh", "dash", "/bin/sh", "/bin/bash", "pwsh", "powershell")
_BEFORE = frozenset(  # words that stand before a command and change nothing
    """
    nohup sudo exec time env uvx stdbuf setsid trtllm-llmapi-launch eval command tini dumb-init -- &
    """.split()  # noqa: SIM905
)
_DOCKERS, _RUNS = ("docker", "podman", "nerdctl"), frozenset({"run", "exec", "create"})
_TAKE_IMAGES = (*_DOCKERS, "singularity", "apptainer", "enroot", "srun", "kubectl", "oc")
_OF_DOCKER = frozenset({"-d", "--rm", "-v", "-p", "--gpus", "-it", "--volume", "--shm-size", "--device"})
_ENVIRONMENTS, _RUN = ("conda", "micromamba", "mamba"), frozenset({"run"})
_LOOKS = frozenset(
    {"ls", "which", "whereis", "stat", "file", "ldd", "cp", "chmod", "rm", "test", "cat", "find"}
)  # files, not programs
_CONTAINERS = frozenset(  # programs that run the command among their own words
    """
    docker podman nerdctl docker-compose singularity apptainer enroot srun mpirun mpiexec salloc numactl taskset timeout nice
    ionice conda micromamba uv pixi poetry torchrun xvfb-run nsys ncu hatch kubectl oc screen tmux watch su
    """.split()  # noqa: SIM905
)


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """``engine``, the release that an image names, the words after the program; ``before``: the words of what wraps it.

    ``shell``: the text of a nested shell command (``sh -c "..."``) instead of words.
    """

    engine: str = ""
    version: str | None = None
    words: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    shell: str = ""
    verb: str = ""


def program_of(words: Sequence[str]) -> Program | None:
    """The engine that these words start, or None."""
    rest = list(words)
    before: list[str] = []
    while rest and (ASSIGNMENT.fullmatch(rest[0]) or rest[0] in _BEFORE):
        before.append(rest.pop(0))
        while rest and before[-1] in _BEFORE and rest[0].startswith("-") and len(rest) > 1:  # its own switches: tini -s --
            before.append(rest.pop(0))
            if before[-1] == "--":
                break
    if not rest:
        return None
    name = _BUILDS.sub(r"\1", rest[0].rsplit("/", 1)[-1].removesuffix(".exe"))
    if open_names(rest[0]) and rest[1:2] == ["run"] and _OF_DOCKER & set(rest[2:12]):  # $ENGINE: docker or podman
        name, rest[0] = "docker", "docker"
    if name in _CONTAINERS:
        return _wrapped(rest, before)
    if nested := _nested(rest, name):
        return Program(shell=nested[0], words=tuple(nested[1:]), before=tuple(before))
    found = _direct(name, rest)
    return msgspec.structs.replace(found, before=tuple(before)) if found else None


def image_engine(image: str) -> tuple[str, str | None] | None:
    """Engine and release of a container image (``vllm/vllm-openai:v0.11.0``); None for any other image."""
    name, _, tag = image.lower().partition("@")[0].rpartition(":") if ":" in image.rsplit("/", 1)[-1] else (image.lower(), "", "")
    engine = next((engine for part, engine in _IMAGES if re.search(rf"(?<![a-z]){re.escape(part)}", name)), "")
    if not engine:
        return None
    release = re.fullmatch(r"v?(\d{1,3}(?:\.\d{1,4}){1,3})(?:\.post\d+)?(?:[.-].*)?", tag)
    own = engine == "vllm" and not any(part in name for part in ("llm-d", "lmcache", "kserve", "runtime"))
    monthly = name.startswith("nvcr.io/")  # NVIDIA's tags are a year and a month
    return engine, release[1] if release and not monthly and (own or engine == "sglang") else None


def engine_of_flags(words: Sequence[str]) -> tuple[str, int] | None:
    """The engine whose own flags these words hold, and the place of the first: for an image whose name tells nothing."""
    plain = [word.partition("=")[0].replace("_", "-") for word in words]
    for engine, model, others in _OWN_FLAGS:
        places = [plain.index(flag) for flag in (model, *others) if flag in plain]
        if model in plain and len(places) > 1 and (engine != "llama_cpp" or any(word.endswith(".gguf") for word in words)):
            return engine, min(places)
    return _behind_model(plain)


def _behind_model(plain: list[str]) -> tuple[str, int] | None:
    """Flags of vLLM's own behind a model that no flag names: ``IMAGE MODEL --max-model-len 8192 ...``, by three of them."""
    own = [plain.index(flag) for flag in _OWN_FLAGS[1][2] if flag in plain]
    first = next((place for place, word in enumerate(plain) if place and word in _FIRST_FLAGS), 0)
    place = min([*own, first] if first else own, default=0)
    named = place > 0 and re.fullmatch(r"[\w./$\{\}-]*/[\w.$\{\}-]+|\$\{[\w-]+\}", plain[place - 1]) is not None
    return ("vllm", place - 1) if len(own) >= _SURE and named else None


def _direct(name: str, words: list[str]) -> Program | None:
    rest = words[1:]
    if name in _VERBS and rest and rest[0] in _VERBS[name][1]:
        engine, verb = _VERBS[name][0], rest.pop(0)
        if rest[:1] == ["proxy"]:
            return None
        while rest and rest[0] in _MORE_VERBS:
            rest.pop(0)
        return Program(engine=engine, words=tuple(rest), verb=verb)
    if name.startswith(("python", "pypy")):
        return _python(rest)
    if name in _PROGRAMS:
        return Program(engine=_PROGRAMS[name], words=tuple(rest[1:] if rest[:1] == ["serve"] else rest), verb=name)
    if name in ("server", "main") and any(word.endswith(".gguf") for word in rest):
        return Program(engine="llama_cpp", words=tuple(rest), verb=name)
    return None


def _python(words: list[str]) -> Program | None:
    place = words.index("-m") if "-m" in words[:6] else -1
    if 0 <= place < len(words) - 1:
        module, rest = words[place + 1], words[place + 2 :]
        if module in _VERBS and module not in _MODULES:  # python -m mlx_lm server
            return _direct(module, words[place + 1 :])
        if module not in _MODULES:
            return None
        while rest and rest[0] in ("serve", "api_server", "launch_server"):
            rest = rest[1:]
        return Program(engine=_MODULES[module], words=tuple(rest), verb=module)
    script = next((word for word in words[:4] if word.endswith(".py")), "")
    rest = words[words.index(script) + 1 :] if script else []
    if script.endswith("vllm/entrypoints/openai/api_server.py"):
        return Program(engine="vllm", words=tuple(rest))
    if script.rsplit("/", 1)[-1] in ("local_chat.py", "koboldcpp.py") or "ktransformers/server/main.py" in script:
        return Program(engine=_PROGRAMS.get(script.rsplit("/", 1)[-1], "ktransformers"), words=tuple(rest))
    return None


def _nested(words: list[str], name: str) -> list[str]:
    """The text of ``sh -c "..."`` and the words after it, of which the first is the script's own name."""
    if name not in SHELLS and words[0] not in SHELLS:
        return []
    flag = next((place for place, word in enumerate(words[:5]) if re.fullmatch(r"-[a-z]*c", word)), 0)
    rest = words[flag + 1 :] if flag else []
    return rest[1:] if rest[:1] == ["--"] else rest


def _wrapped(words: list[str], before: list[str]) -> Program | None:
    """What a container or a job starter runs: the first known program among its words, else the image's own."""
    runs = _RUNS if (starter := words[0].rsplit("/", 1)[-1]) in _DOCKERS else _RUN if starter in _ENVIRONMENTS else frozenset()
    if runs and not runs & set(words[1:4]):  # conda create --name ktransformers
        return None
    for place in range(1, len(words)):
        name = words[place].rsplit("/", 1)[-1].removesuffix(".exe")
        if (nested := _nested(words[place:], name)) and name in SHELLS:
            engine, version = next(
                (image_engine(word) for word in words[:place] if "/" in word and image_engine(word)), None
            ) or ("", None)
            wrapped = (*before, *words[:place])
            return Program(shell=nested[0], words=tuple(nested[1:]), before=wrapped, engine=engine, version=version)
        if words[place - 1] == "--entrypoint" and (found := _entered(words, place)):
            return msgspec.structs.replace(found, before=(*before, *found.before))
        if name in _LOOKS and not words[place - 1].startswith("-"):
            return None
        if name not in _CONTAINERS and (found := _direct(name, words[place:])):
            image = next((image_engine(word) for word in words[:place] if "/" in word and image_engine(word)), None)
            version = image[1] if image and image[0] == found.engine else None
            return msgspec.structs.replace(found, before=(*before, *words[:place]), version=version)
    if "--entrypoint" in words[:-1] and words[words.index("--entrypoint") + 1].startswith("python"):
        return None  # another program in an engine's image
    for place, word in enumerate(words[1:], 1):
        if not word.startswith("-") and "=" not in word and _is_image(words[place - 1], word) and _takes_image(words[:place]):
            engine, version = image_engine(word) or ("", None)
            rest = tuple(words[place + 1 :])
            if rest and (rest[0].rsplit("/", 1)[-1] in SHELLS or rest[0].startswith("/bin/")):
                return None
            return Program(engine=engine, version=version, words=rest, before=(*before, *words[: place + 1]))
    if words[0].rsplit("/", 1)[-1] in _DOCKERS and (own := engine_of_flags(words)):
        return Program(engine=own[0], words=tuple(words[own[1] :]), before=(*before, *words[: own[1]]))
    return None


def _entered(words: list[str], place: int) -> Program | None:
    """``--entrypoint vllm IMAGE serve MODEL ...``: the program of the flag with the words behind the image."""
    for image in range(place + 1, len(words)):
        after_flag = image > place + 1 and words[image - 1].startswith("-")
        if words[image].startswith("-") or after_flag:
            continue
        found = _direct(words[place].rsplit("/", 1)[-1], [words[place], *words[image + 1 :]])
        told = image_engine(words[image])
        version = told[1] if told and found and told[0] == found.engine else None
        return msgspec.structs.replace(found, before=tuple(words[: image + 1]), version=version) if found else None
    return None


def _takes_image(before: Sequence[str]) -> bool:
    return any(word.rsplit("/", 1)[-1] in _TAKE_IMAGES for word in before)


def _is_image(previous: str, word: str) -> bool:
    """An image's name, and no mount or name given to the flag before it."""
    takes = previous in ("-v", "--volume", "--name", "-p", "-e", "--env", "--network", "--mount", "-w", "--hostname", "--label")
    plain = not word.startswith(("/", "./", "~", "$")) and not re.search(r"\s", word.strip())
    return not takes and plain and image_engine(word) is not None
