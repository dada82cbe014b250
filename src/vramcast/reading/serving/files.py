"""Files that start a serving engine: which format one has, and the launches in it; files that it names are read beside it.

Kinds: scripts and SLURM jobs, compose files, Kubernetes manifests, Helm values, an engine's own YAML, Ray Serve's and Dynamo's
configurations, llama-swap's, Modelfiles and Dockerfiles, Triton's config.pbtxt, Python programs, Markdown, systemd units.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from vramcast.errors import ConfigError, QuestionError
from vramcast.reading.beside import MOST_BYTES, texts_beside
from vramcast.reading.serving.commands import launch_of
from vramcast.reading.serving.environment import engine_of_environment, read_environment_file
from vramcast.reading.serving.launch import Launch, LaunchContext
from vramcast.reading.serving.programs import Program
from vramcast.reading.serving.scripts import read_script
from vramcast.reading.shell.make import is_make
from vramcast.reading.templates import plain_ending, untemplated, with_variables, without_blocks
from vramcast.units import MiB
from vramcast.untrusted import existing_path, parse_json, parse_toml, parse_yaml_documents, read_bytes

_MOST_LAUNCHES = 200
ENDINGS = (
    ".sh", ".bash", ".zsh", ".yml", ".yaml", ".txt", ".service", ".ps1", ".bat", ".sbatch", ".slurm", ".env", ".md", ".pbtxt",
    ".py", ".modelfile", ".ipynb", ".conf", ".container", ".ini", ".cmd", ".properties", ".toml", ".mk", ".tf", ".tfvars", ".nix",
)  # fmt: skip
_MAPPINGS = (".yml", ".yaml", ".json", ".toml")
_NAMES = ("modelfile", "dockerfile", "containerfile", ".env", "makefile", "justfile")


class ServingFile(msgspec.Struct, frozen=True, kw_only=True):
    """``kind``: what the file was taken for, in words; ``launches``: what it starts, in order."""

    kind: str
    launches: tuple[Launch, ...] = ()


def is_serving_file(text: str) -> bool:
    """Whether the text names a file that may start an engine, and is there."""
    path = existing_path(text)
    if path is None or not path.is_file():
        return False
    name = path.name.lower()
    return name.endswith((*ENDINGS, *_NAMES)) or name.startswith(("modelfile", "dockerfile", ".env"))


def read_serving_file(text: str, *, variables: Mapping[str, str] | None = None) -> ServingFile:
    """The launches in a file. Raises QuestionError where there are none, or the file cannot be read."""
    path = Path(text).expanduser()
    content = read_bytes(path, most=MOST_BYTES).decode("utf-8", "replace")
    return read_serving_text(content, path.name, folder=path.parent, variables=variables)


def read_serving_text(
    content: str, name: str = "", *, folder: Path | None = None, variables: Mapping[str, str] | None = None
) -> ServingFile:
    """The launches in a text. ``name``: the file's, for messages and its ending; ``folder``: where files that it names lie.

    ``variables``: what stands for the artefact's own. Raises QuestionError where it starts no engine known here.
    """
    what = name or "the text"
    held = LaunchContext(where=name, variables=dict(variables or {}), text_of=_files_of(name, folder), others=_inside)
    found = _with_downloads(_read(content, what, held), content)
    if not found.launches:
        raise QuestionError(
            f"{what} starts no engine known here: expected a line such as vllm serve MODEL, llama-server -m FILE, "
            "python -m sglang.launch_server --model-path MODEL, a compose file, a Kubernetes manifest, an engine's YAML, a "
            "Modelfile or a program with LLM(...)"
        )
    if len(found.launches) > _MOST_LAUNCHES:
        raise QuestionError(f"{what} starts {len(found.launches):,} engines: give the part that is meant")
    return found


def find_launches(
    content: str, name: str = "", *, folder: Path | None = None, variables: Mapping[str, str] | None = None
) -> ServingFile:
    """As ``read_serving_text``, with no launches where the text starts nothing. Raises QuestionError for malformed files."""
    held = LaunchContext(where=name, variables=dict(variables or {}), text_of=_files_of(name, folder), others=_inside)
    return _with_downloads(_read(content, name or "the text", held), content)


def _with_downloads(found: ServingFile, content: str) -> ServingFile:
    from vramcast.reading.serving.downloads import with_downloads

    return msgspec.structs.replace(found, launches=with_downloads(found.launches, content))


def _files_of(name: str, folder: Path | None) -> Callable[[str], str | None]:
    """The reader of files that the artefact names: beside it and, by their path alone, in the folders just above."""
    joins = name.lower() in ("kustomization.yaml", "kustomization.yml")
    return texts_beside(folder, up=3 if joins else 2, exact=joins)


def _inside(name: str, text: str, held: LaunchContext) -> tuple[Launch, ...]:
    """What a text starts that another file holds: a program in a script, a compose file that a script writes."""
    try:
        return _read(text, name.rsplit("/", 1)[-1] or "the text", held).launches
    except (QuestionError, ConfigError):
        return ()


def _read(content: str, what: str, held: LaunchContext) -> ServingFile:
    lower = plain_ending(what)
    if (found := _of_one_format(content, lower, held)) is not None:
        return found
    if lower.endswith(".ipynb"):
        return _notebook(content, what, held)
    if lower.endswith(".py"):
        return _python(content, lower, held)
    if lower.endswith((".md", ".mdx", ".markdown", ".rst")):
        return _markdown(content, held)
    if is_make(lower):
        return _text(content, lower, held)
    if lower.endswith(_MAPPINGS) or _looks_like_yaml(content):
        found = _yaml(content, what, held)
        if found.launches or lower.endswith(_MAPPINGS):
            return found
    return _text(content, lower, held)


def _of_one_format(content: str, lower: str, held: LaunchContext) -> ServingFile | None:
    """A file whose ending or first lines name its one format; None for others."""
    from vramcast.reading.serving import modelfile, nix, presets, properties, triton

    plain = not lower.endswith(ENDINGS)
    if lower.endswith(".modelfile") or lower.startswith("modelfile") or modelfile.is_modelfile(content):
        return ServingFile(kind=modelfile.NAME, launches=modelfile.read(content, held))
    if lower.startswith(("dockerfile", "containerfile")) or (plain and modelfile.is_dockerfile(content)):
        return ServingFile(kind="Dockerfile", launches=modelfile.read_dockerfile(content, held))
    if lower.endswith(".pbtxt") or (plain and triton.is_triton(content)):
        return ServingFile(kind=triton.NAME, launches=triton.read(content, held))
    if lower.endswith(".ini") or (plain and presets.is_presets(content)):
        return ServingFile(kind=presets.NAME, launches=presets.read(content, held))
    if lower.endswith(".properties") or (plain and properties.is_properties(content)):
        return ServingFile(kind=properties.NAME, launches=properties.read(content, held))
    if lower.endswith(".nix"):
        return ServingFile(kind=nix.NAME, launches=nix.read(content, held))
    return None


def _python(content: str, lower: str, held: LaunchContext) -> ServingFile:
    """A program; in a Markdown block that is marked so by mistake, a script."""
    from vramcast.reading.serving import python_calls

    try:
        return ServingFile(kind=python_calls.NAME, launches=python_calls.read(content, held))
    except QuestionError:
        if lower != "block.py":
            raise
        return ServingFile(kind="shell script", launches=read_script(content, held))


def _text(content: str, lower: str, held: LaunchContext) -> ServingFile:
    """What has no format of its own: a script, a pasted line, a unit, a program without its ending."""
    if lower.endswith((".service", ".container")) or re.search(r"^ExecStart=", content, re.M):
        return ServingFile(kind="systemd unit", launches=_unit(content, held))
    if re.search(r"^\[program:", content, re.M):
        return ServingFile(kind="supervisor configuration", launches=_supervised(content, held))
    if launches := _environment(content, held):
        return ServingFile(kind="file of variables", launches=launches)
    content = _plain_script(content, lower)
    launches = read_script(content, held) or _kept(content, held)
    kind = (
        "SLURM script" if "#SBATCH" in content else "command line" if len(content.strip().splitlines()) == 1 else "shell script"
    )
    if not launches and re.search(r"^[ \t]*(?:from|import) \w+", content, re.M):
        from vramcast.reading.serving import python_calls

        try:
            return ServingFile(kind=python_calls.NAME, launches=python_calls.read(content, held))
        except QuestionError:
            pass
    from vramcast.reading.serving.markdown import is_markdown

    if not launches and is_markdown(content):
        return _markdown(content, held)
    return ServingFile(kind=kind, launches=launches)


def _plain_script(content: str, lower: str) -> str:
    """A script as the shell's: placeholders of templates as variables that somebody fills in, batch files put into its words."""
    from vramcast.reading.shell.batch import batch_as_shell, is_batch
    from vramcast.reading.shell.make import make_as_shell
    from vramcast.reading.shell.powershell import powershell_as_shell

    if is_make(lower):
        return make_as_shell(content)
    if "{{" in content:
        content = with_variables(without_blocks(content))
    if lower.endswith((".bat", ".cmd")) or is_batch(content):
        return batch_as_shell(content)
    return powershell_as_shell(content) if lower.endswith(".ps1") else content


def _kept(content: str, held: LaunchContext) -> tuple[Launch, ...]:
    """The flags that a script keeps for another that starts the engine."""
    from vramcast.reading.serving.bare_flags import read_arrays

    kept = re.search(r"^[ \t]*(?:export\s+)?\w+\+?=(?:\(|[\"']?--?[a-z])", content, re.M)
    return read_arrays(content, held) if kept else ()


def _yaml(content: str, what: str, held: LaunchContext) -> ServingFile:
    from vramcast.reading.serving import (
        any_mapping,
        compose,
        dynamo,
        engine_yaml,
        helm,
        jobs,
        kubernetes,
        kustomize,
        llama_swap,
        ollama_settings,
        ray_programs,
        ray_serve,
        recipes,
    )  # fmt: skip

    plain = untemplated(content) if "{{" in content or "{%" in content else content
    if plain_ending(what).endswith(".json"):
        documents: list[Any] = [parse_json(content, what)]
    elif plain_ending(what).endswith(".toml"):
        documents = [parse_toml(plain, what)]
    else:
        documents = parse_yaml_documents(plain, what)
    first = next((one for one in documents if one is not None), None)
    if kustomize.is_kustomization(first, what):
        return ServingFile(kind=kustomize.NAME, launches=kustomize.read(first, held))
    if launches := kubernetes.read(documents, held) or kubernetes.of_operators(documents, held):
        return ServingFile(kind=kubernetes.NAME, launches=launches)
    for module in (
        compose,
        llama_swap,
        ray_serve,
        ray_programs,
        dynamo,
        recipes,
        jobs,
        helm,
        engine_yaml,
        any_mapping,
        ollama_settings,
    ):
        if launches := module.read(first, held):
            return ServingFile(kind=module.NAME, launches=_with_guide(launches, first, held))
    if launches := tuple(launch for one in documents[1:] for launch in any_mapping.read(one, held)):
        return ServingFile(kind=any_mapping.NAME, launches=launches)
    if launches := any_mapping.bare_servers(documents, held):
        return ServingFile(kind="list of containers", launches=launches)
    return ServingFile(kind="YAML", launches=_with_guide((), first, held))


def _with_guide(launches: tuple[Launch, ...], document: Any, held: LaunchContext) -> tuple[Launch, ...]:
    """The launches, then those of a Markdown text among the document's own values (a recipe's guide)."""
    guides = {k: v for k, v in document.items() if isinstance(v, str) and "```" in v} if isinstance(document, dict) else {}
    more = [one for key, text in guides.items() for one in _markdown(text, held.at(str(key))).launches]
    return (*launches, *(one for one in more if not any(_same(one, other) for other in launches)))


def _environment(content: str, held: LaunchContext) -> tuple[Launch, ...]:
    """What a file of nothing but NAME=value lines sets: for a server that reads them by itself, else by names of arguments."""
    from vramcast.reading.serving import named_settings

    lines = [line for line in content.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines or not named_settings.is_settings(content):
        return ()
    variables = read_environment_file(content)
    engine = engine_of_environment(variables)
    launch = launch_of(Program(engine=engine), held, variables) if engine else None
    return (launch,) if launch else _kept(content, held) or named_settings.read(content, held)


def _unit(content: str, held: LaunchContext) -> tuple[Launch, ...]:
    """The command of a systemd unit, or of a quadlet's container, with its variables."""
    plain = re.sub(r"\\\s*\n", " ", content)
    pairs = re.findall(r"^Environment=[\"']?(\w{1,60})=([^\"'\n]{0,300})", plain, re.M)
    commands = re.findall(r"^Exec(?:Start)?=[-@:+!]*(.{1,4000})$", plain, re.M)
    image = re.search(r"^Image=(\S+)", plain, re.M)
    text = "\n".join(f"docker run {image[1]} {command}" if image else command for command in commands)
    return read_script(text, held, environment=dict(pairs))


def _supervised(content: str, held: LaunchContext) -> tuple[Launch, ...]:
    """The commands of supervisord's programs, each with its variables (``[program:NAME]``, ``command=``, ``environment=``)."""
    found: list[Launch] = []
    plain = re.sub(r"\s;.*$", "", content, flags=re.M)
    plain = re.sub(r"\n[ \t]+", " ", plain)
    # Supervisor 4.2, "Environment Variables" of its configuration file: %(ENV_X)s is the variable X
    plain = re.sub(r"%\((?:ENV_)?(\w{1,60})\)0?\d{0,2}[sd]", r"${\1}", plain)
    for name, body in re.findall(r"^\[program:([^\]\n]{1,100})\]([^\0]*?)(?=^\[|\Z)", plain, re.M):
        command = re.search(r"^command\s*=\s*(.{1,4000})$", body, re.M)
        said = re.search(r"^environment\s*=\s*(.{1,4000})$", body, re.M)
        pairs = re.findall(r"(\w{1,60})=(?:\"([^\"]*)\"|([^,]*))", said[1]) if said else ()
        variables = {key: quoted or plain for key, quoted, plain in pairs}
        found += read_script(command[1], held.at(name), environment=variables, name=name) if command else ()
    return tuple(found)


_BLOCKS = {"python": ".py", "py": ".py", "yaml": ".yaml", "yml": ".yaml", "dockerfile": "dockerfile", "modelfile": "modelfile"}


def _markdown(content: str, held: LaunchContext) -> ServingFile:
    """The fenced blocks of a Markdown file, each under its heading; blocks that are no artefact are passed over."""
    from vramcast.reading.serving.markdown import blocks_of, joined

    launches: list[Launch] = []
    for block in joined(blocks_of(content)):
        ending = _BLOCKS.get(block.language, "")
        place = held.at(block.heading) if block.heading else held
        found = _block(block.text, f"block{ending}" if ending.startswith(".") else ending or "block", place)
        launches += [msgspec.structs.replace(x, name=x.name or block.heading) for x in found if x.model]
    distinct = [x for place, x in enumerate(launches) if not any(_same(x, other) for other in launches[:place])]
    return ServingFile(kind="Markdown", launches=tuple(distinct))


def _block(text: str, name: str, held: LaunchContext) -> tuple[Launch, ...]:
    """What a block starts; of a YAML that breaks off (its later part indented otherwise) the part before, and that is told."""
    from vramcast.reading.serving.markdown import beginnings_of

    try:
        return _read(text, name, held).launches
    except (QuestionError, ConfigError):
        for part in beginnings_of(text) if name.endswith(".yaml") else ():
            found = _inside(name, part, held)
            if any(one.model for one in found):
                unread = f"the block from line {part.count(chr(10)) + 2} on, which is not YAML"
                return tuple(msgspec.structs.replace(one, unread=(*one.unread, unread)) for one in found)
    return ()


def _same(one: Launch, other: Launch) -> bool:
    return (one.engine, one.model, one.flags) == (other.engine, other.model, other.flags)


def _notebook(content: str, what: str, held: LaunchContext) -> ServingFile:
    from vramcast.reading.notebooks import code_of, shell_of
    from vramcast.reading.serving import python_calls

    raw = parse_json(content, what)
    launches = (*python_calls.read(code_of(raw, what), held), *read_script(shell_of(raw, what), held))
    return ServingFile(kind="notebook", launches=launches)


def _looks_like_yaml(content: str) -> bool:
    """Whether a text without a telling name begins as a mapping: ``key:`` at the start of a line, and no shell line."""
    lines = [line for line in content.splitlines() if line.strip() and not line.lstrip().startswith(("#", "---"))]
    return bool(lines) and len(lines) > 1 and re.match(r"[A-Za-z_][\w.-]*:(?:\s|$)", lines[0]) is not None


def variables_of(paths: tuple[str, ...]) -> dict[str, str]:
    """The variables of ``.env`` files. Raises QuestionError for one that cannot be read."""
    found: dict[str, str] = {}
    for path in paths:
        found |= read_environment_file(read_bytes(Path(path).expanduser(), most=MiB).decode("utf-8", "replace"))
    return found
