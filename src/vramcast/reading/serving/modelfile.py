"""Ollama's Modelfile, and Dockerfiles whose image starts an engine."""

import json
import re

import msgspec

from vramcast.errors import VramcastError
from vramcast.reading.serving.containers import Container
from vramcast.reading.serving.launch import Launch, LaunchContext
from vramcast.reading.serving.programs import SHELLS, image_engine
from vramcast.reading.serving.scripts import read_script
from vramcast.reading.serving.words import words_of
from vramcast.untrusted import parse_json

NAME = "Modelfile"
_PARAMETERS = {"num_ctx": "ctx-size", "num_gpu": "n-gpu-layers", "num_batch": "n-batch"}
_IDLE = frozenset(
    {"temperature", "top_p", "top_k", "min_p", "stop", "seed", "num_predict", "repeat_penalty", "repeat_last_n", "mirostat",
     "mirostat_eta", "mirostat_tau", "tfs_z", "num_thread", "presence_penalty", "frequency_penalty", "penalize_newline",
     "num_keep"}
)  # fmt: skip
_OWN = re.compile(r"^[ \t]*(PARAMETER|TEMPLATE|SYSTEM|MESSAGE|ADAPTER|LICENSE)\b", re.M | re.I)
_BUILDS = re.compile(r"^[ \t]*(RUN|COPY|ENTRYPOINT|CMD|WORKDIR|EXPOSE|ARG|ENV)\b", re.M)


def is_modelfile(text: str) -> bool:
    """Whether a text is a Modelfile: a base, and Ollama's own instructions or nothing that a Dockerfile has."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    base = bool(lines) and re.fullmatch(r"FROM\s+\S+", lines[0], re.I) is not None
    return base and not _BUILDS.search(text) and (bool(_OWN.search(text)) or len(lines) == 1)


def is_dockerfile(text: str) -> bool:
    """Whether a text is a Dockerfile."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return bool(lines) and re.match(r"(?:FROM|ARG)\s+\S+", lines[0]) is not None and bool(_BUILDS.search(text))


def read(text: str, held: LaunchContext) -> tuple[Launch, ...]:
    """The model and the parameters of a Modelfile."""
    base = re.search(r"^[ \t]*FROM\s+[\"']?([^\s\"']+)", text, re.M | re.I)
    if base is None:
        return ()
    flags: list[str] = []
    idle: list[str] = []
    unread: list[str] = []
    for name, value in re.findall(r"^[ \t]*PARAMETER\s+(\w{1,40})\s+(\S{1,200})", text, re.M | re.I):
        plain = name.lower()
        if plain in _PARAMETERS:
            flags.append(f"--{_PARAMETERS[plain]}={value}")
        else:
            (idle if plain in _IDLE else unread).append(plain)
    unread += ["ADAPTER"] if re.search(r"^[ \t]*ADAPTER\s", text, re.M | re.I) else []
    return (
        Launch(
            engine="ollama",
            model=base[1],
            flags=tuple(flags),
            where=held.where,
            idle=tuple(dict.fromkeys(idle)),
            unread=tuple(unread),
        ),
    )


def read_dockerfile(text: str, held: LaunchContext) -> tuple[Launch, ...]:
    """What an image of this Dockerfile starts: its entry point and command, under its base image's."""
    what = container_of(text)
    scripts = _written(text)
    inside = msgspec.structs.replace(held, text_of=lambda name: scripts.get(name.rsplit("/", 1)[-1]) or held.text_of(name))
    found = what.launches(inside) or _entered(what, inside)
    opens_a_shell = any('"$@"' in word for word in what.entry) or bool(what.entry and what.entry[-1] in SHELLS)
    if (
        not found and not opens_a_shell and (engine := image_engine(what.image)) and engine[0]
    ):  # an entry point of its own, not at hand
        return (Launch(engine=engine[0], model="", version=engine[1], where=held.where),)
    return found


def _entered(what: Container, held: LaunchContext) -> tuple[Launch, ...]:
    """What the script starts that the entry point names, written by the Dockerfile itself or at hand beside it."""
    script = next((word for word in (*what.entry, *what.arguments)[:4] if word.endswith(".sh")), "")
    content = held.text_of(script) if script else None
    if content is None:
        return ()
    words = (*what.entry, *what.arguments)
    found = read_script(content, held, environment=what.environment, arguments=words[words.index(script) + 1 :])
    told = image_engine(what.image) or ("", None)
    return tuple(msgspec.structs.replace(x, version=x.version or (told[1] if told[0] == x.engine else None)) for x in found)


def _written(text: str) -> dict[str, str]:
    """Scripts that a Dockerfile writes: ``RUN cat <<EOF >/start.sh`` and ``COPY <<EOF /start.sh``, by their last name."""
    found = re.findall(
        r"^[ \t]*(?:RUN\s+cat|COPY)\s+<<-?([\"']?)(\w{1,40})\1\s*>?\s*(\S+)[^\n]*\n(.*?)^\2\s*$", text, re.M | re.S
    )
    written = {name: body if quote else re.sub(r"\\([$`\\])", r"\1", body) for quote, _, name, body in found}
    told = re.findall(r"^[ \t]*RUN\s+(?:echo|printf)\s+(?:-e\s+)?'([^']{1,8000})'\s*>\s*(\S+)", text, re.M)
    written |= {name: re.sub(r"\\n(?:\\\n)?", "\n", body) for body, name in told}
    return {name.rsplit("/", 1)[-1]: body for name, body in written.items()}


def container_of(text: str) -> Container:
    """A Dockerfile's last base image, entry point, command and variables."""
    plain = re.sub(r"\\\s*\n", " ", text)
    images = re.findall(r"^[ \t]*FROM\s+(?:--\S+\s+)?(\S+)", plain, re.M)
    variables = dict(re.findall(r"^[ \t]*(?:ENV|ARG)\s+(\w{1,60})[= ]\"?([^\"\n]{0,300}?)\"?\s*$", plain, re.M))
    return Container(
        image=images[-1] if images else "",
        entry=_instruction(plain, "ENTRYPOINT"),
        arguments=_instruction(plain, "CMD"),
        environment=variables,
    )


def _instruction(text: str, name: str) -> tuple[str, ...]:
    found = re.findall(rf"^[ \t]*{name}\s+(.{{1,4000}})$", text, re.M)
    if not found:
        return ()
    value = found[-1].strip()
    if value.startswith("["):
        try:
            words = parse_json(value, name)
        except (VramcastError, json.JSONDecodeError):
            return ()
        return tuple(str(word) for word in words) if isinstance(words, list) else ()
    return words_of(value)
