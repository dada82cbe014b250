"""Helm's and Jinja's templates as variables, so that what they leave open is asked for like a shell's."""

import re

_TEMPLATE = re.compile(r"\{\{-?\s*([^{}]{0,300}?)\s*-?\}\}")
_CONTROL = re.compile(r"^\s*\{\{-?\s*(?:if|else|end|range|with|define|include|template|toYaml|/\*|\$)[^{}]*-?\}\}\s*$")
_JINJA = re.compile(r"\{%[-+]?.*?[-+]?%\}|(?<!\$)\{#[^\n]*?#\}", re.S)
_ENDING = re.compile(r"\.(?:j2|jinja2?|tpl|tmpl|template|sample|example|dist|erb)$")


def untemplated(content: str) -> str:
    """A template's text: ``{{ .Values.model.name }}`` is ``${name}``; lines of control are dropped, what they hold stays."""
    content = without_blocks(content)
    return with_variables("\n".join(line for line in content.splitlines() if not _CONTROL.match(line)))


def without_blocks(content: str) -> str:
    """The text without Jinja's ``{% ... %}`` and ``{# ... #}``, and without the lines on which they stood alone."""
    if "{%" not in content and "{#" not in content:
        return content
    lines = content.splitlines()
    kept = [(line, _JINJA.sub("", line)) for line in lines]
    return _JINJA.sub("", "\n".join(plain for line, plain in kept if plain.strip() or not line.strip()))


def with_variables(content: str) -> str:
    """The text with each holder as a variable, or as the default that it names."""
    filled = _TEMPLATE.sub(_variable, content)
    return re.sub(r"\[(\$\{\w+\})\]", r'["\1"]', filled)  # a brace inside a list of YAML would open a mapping


def plain_ending(name: str) -> str:
    """A file's name without the ending that says it is a template or an example: ``compose.yml.j2`` is ``compose.yml``."""
    plain = _ENDING.sub("", name.lower())
    return plain if "." in plain else name.lower()


def _variable(found: re.Match[str]) -> str:
    default = re.search(r"default\s+\"?([\w./-]{1,80})\"?", found[1]) or re.search(
        r"default\(\s*(?:[\"']([\w./-]{1,80})[\"']|(\d[\w.]{0,20}))", found[1]
    )
    name = re.findall(r"\w+", found[1].split("|")[0])
    told = next((group for group in default.groups() if group), "") if default else ""
    return told or f"${{{name[-1] if name else 'value'}}}"
