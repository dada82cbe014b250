"""Makefiles and justfiles as a shell's: variables with their defaults, recipes as commands."""

import re

_SETS = re.compile(r"^(?:export\s+)?([A-Za-z_][\w-]{0,60})\s*(?:\?=|::?=|\+=|=)\s*(.*?)\s*$")
_TARGET = re.compile(r"^[\w./$(){}%@*-][^=:#]{0,200}:(?!=)[^=].*$|^[\w./-]+:\s*$")
_CALLS = re.compile(r"\$\((?:or|strip|if|shell|firstword|subst|patsubst)\s[^()]*\)")


def is_make(name: str) -> bool:
    """Whether a file's name is a Makefile's or a justfile's."""
    return name in ("makefile", "gnumakefile", "justfile", ".justfile") or name.endswith((".mk", ".just"))


def make_as_shell(text: str) -> str:
    """Assignments as the shell's, ``$(X)`` and just's ``{{x}}`` as ``${X}``, recipes without their marks."""
    lines: list[str] = []
    for line in re.sub(r"\\\r?\n[ \t]*", " ", text).splitlines():
        recipe = line[:1] in ("\t", " ")
        plain = line.strip()
        if not recipe and (found := _SETS.match(plain)):
            value = re.sub(r"\s#.*$", "", found[2]).strip().strip("\"'")
            lines.append(f'{found[1].replace("-", "_")}="{_variables(value)}"')
        elif recipe:
            lines.append(_variables(plain.lstrip("@-+")).replace("$$", "$"))
        elif not _TARGET.match(plain) or plain.startswith("#"):
            lines.append("" if plain.startswith(("ifeq", "ifneq", "ifdef", "ifndef", "else", "endif", ".", "include")) else plain)
    return "\n".join(lines)


def _variables(text: str) -> str:
    text = _CALLS.sub("${output_of_make}", text)
    text = re.sub(r"\$\(([A-Za-z_]\w{0,60})\)", r"${\1}", text)
    return re.sub(r"\{\{\s*([A-Za-z_][\w-]{0,60})\s*\}\}", lambda found: f"${{{found[1].replace('-', '_')}}}", text)
