"""Helm's and Jinja's templates as variables, so that what they leave open is asked for like a shell's."""

import re

_TEMPLATE = re.compile(r"\{\{-?\s*([^{}]{0,300}?)\s*-?\}\}")
_CONTROL = re.compile(r"^\s*\{\{-?\s*(?:if|else|end|range|with|define|include|template|toYaml|/\*|\$)[^{}]*-?\}\}\s*$")


def untemplated(content: str) -> str:
    """A template's text: ``{{ .Values.model.name }}`` is ``${name}``; lines of control are dropped."""
    return with_variables("\n".join(line for line in content.splitlines() if not _CONTROL.match(line)))


def with_variables(content: str) -> str:
    """The text with each holder as a variable, or as the default that it names."""
    return _TEMPLATE.sub(_variable, content)


def _variable(found: re.Match[str]) -> str:
    default = re.search(r"default\s+\"?([\w./-]{1,80})\"?", found[1])
    name = re.findall(r"\w+", found[1].split("|")[0])
    return default[1] if default else f"${{{name[-1] if name else 'value'}}}"
