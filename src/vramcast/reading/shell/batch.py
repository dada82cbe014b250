"""cmd's batch files as a shell script: variables, continuations, and what only talks left out."""

import re

_TALKS = re.compile(r"\s*@?(?:echo\b.*|rem\b.*|::.*|title\b.*|pause\b.*|set\s+/p\b.*|color\b.*|cls\b.*|:\w+.*)", re.I)
_SETS = re.compile(r"\s*@?set\s+(?:/[aA]\s+)?\"?([A-Za-z_]\w{0,60})=([^\"]*)\"?\s*", re.I)
_OPENS = re.compile(r"\s*@?(?:if|for|else|\)\s*else)\b.*\(\s*|\s*\)\s*", re.I)
_GUARD = re.compile(
    r"\s{0,40}@?if\s+(?:/i\s+)?(?:not\s+)?(?:(?:exist|defined|errorlevel)\s+(?:\"[^\"]*\"|\S+)|\S+\s*==\s*\S+)\s+", re.I
)
_VARIABLE = re.compile(r"%(?:~\w*\d|([A-Za-z_]\w{0,60})(?::[^%]*)?%)")
_START = re.compile(r"\s{0,40}@?(?:start\s+(?:\"[^\"]*\"\s*)?(?:/\w+\s+)*|call\s+)", re.I)


def is_batch(text: str) -> bool:
    """Whether a text is a batch file of cmd: it silences its echo, or sets and uses variables between percent signs."""
    return bool(re.search(r"^[ \t]*@echo off\b", text, re.M | re.I)) or (
        bool(re.search(r"^[ \t]*set\s+\"?\w+=", text, re.M | re.I)) and bool(re.search(r"%[A-Za-z_]\w*%", text))
    )


def batch_as_shell(text: str) -> str:
    """A batch file's commands as a shell's; blocks of ``if`` and ``for`` are read as if they ran."""
    lines: list[str] = []
    for line in re.sub(r"\^[ \t]*\r?\n", " ", text).splitlines():
        if _TALKS.fullmatch(line) or _OPENS.fullmatch(line):
            continue
        plain = _GUARD.sub("", line)
        if found := _SETS.fullmatch(plain):
            lines.append(f"{found[1]}='{_filled(found[2])}'" if "%" not in found[2] and "!" not in found[2] else
                         f'{found[1]}="{_filled(found[2])}"')  # fmt: skip
        else:
            lines.append(_filled(_START.sub("", plain).lstrip("@ ")))
    return "\n".join(lines)


def _filled(text: str) -> str:
    """``%NAME%`` and ``!NAME!`` as ``${NAME}``; a path's backslashes as slashes."""
    text = re.sub(r"!([A-Za-z_][\w%]{0,60})!", lambda found: f"${{{found[1].replace('%', '')}}}", text)  # !model_%choice%!
    plain = _VARIABLE.sub(lambda found: f"${{{found[1]}}}" if found[1] else ".", text)
    return re.sub(r"\\(?=[\w.$])", "/", plain)
