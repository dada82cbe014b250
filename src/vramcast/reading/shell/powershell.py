"""PowerShell's scripts as a shell's: assignments, arrays that are splatted, simple conditions; what only talks left out."""

import re

_CONTINUED = re.compile(r"`[ \t]*\r?\n")
_DEFAULT = re.compile(r"[A-Za-z]+-[A-Za-z]+\b.*\s-Default(?:Value)?\s+(\"[^\"]*\"|'[^']*'|\S+)\s*")
_SETS = re.compile(r"\s*(?:\[[\w.\[\]]+\]\s*)?\$(?:script:|global:|env:)?([A-Za-z_]\w{0,60})\s*(\+?)=\s*(.*)", re.S)
_PARAMETER = re.compile(r"^[ \t]*(?:\[[^\]]*\]\s*)*\$([A-Za-z_]\w{0,60})\s*=\s*(\"[^\"]*\"|'[^']*'|[\w.]+)\s*,?\s*$", re.M)
_IF = re.compile(r"\s*(?:\}\s*)?(if|elseif)\s*\((.*)\)\s*\{\s*(.*)", re.S)
_EQUALS = re.compile(r"\s*\$([\w:]+)\s+-(eq|ne)\s+(\"[^\"]*\"|'[^']*'|\$?\w+)\s*")
_CHOSEN = re.compile(
    r"if\s*\(\s*\$(?:env:)?(\w+)\s*\)\s*\{\s*\$(?:env:)?\1\s*\}\s*else\s*\{\s*(\"[^\"]*\"|'[^']*'|[\w./:-]+)\s*\}", re.I
)
_TALKS = re.compile(r"\s*(?:Write-\w+|throw|exit|Start-Sleep|Set-\w+|Push-\w+|Pop-\w+)\b.*", re.I | re.S)
_MOST = 5_000


def powershell_as_shell(text: str) -> str:
    """The script with ``$x = @("--a", $b)`` as arrays, ``& $exe @x`` as commands and ``if ($x -eq "1") {`` as tests."""
    plain = re.sub(r"<#.*?#>", "", _CONTINUED.sub(" ", text.replace("\r\n", "\n")), flags=re.S)
    head = re.match(r"\s*(?:#[^\n]*\n\s*)*(?:\[CmdletBinding\(\)\]\s*)?param\s*\((.*?)\n\s*\)", plain, re.S | re.I)
    lines = [f"{name}={value}" for name, value in _PARAMETER.findall(head[1])] if head else []
    opened: list[str] = []
    for statement in _statements(plain[head.end() :] if head else plain):
        lines += _statement(statement, opened)
    return "\n".join(lines)


def _statements(text: str) -> list[str]:
    """Lines, those of an open bracket together."""
    found: list[str] = []
    held = ""
    for line in text.splitlines()[:_MOST]:
        held = f"{held} {line.strip()}" if held else line
        if held.count("(") <= held.count(")") or len(held) > _MOST:
            found.append(held)
            held = ""
    return [*found, held] if held else found


def _statement(text: str, opened: list[str]) -> list[str]:
    """A statement as the shell's; ``opened``: the braces that are open, if or other."""
    if text.lstrip().startswith("#") or _TALKS.fullmatch(text):
        return []
    if test := _IF.fullmatch(text):
        if test[1] == "if":
            opened.append("if")
        inner = test[3].rstrip().removesuffix("}").strip()
        closed = test[3].rstrip().endswith("}") and test[3].count("}") > test[3].count("{")
        body = _statement(inner, opened) if inner else []
        done = ["fi"] if closed and opened and opened.pop() else []
        return [f"{'if' if test[1] == 'if' else 'elif'} {_condition(test[2])}; then", *body, *done]
    stripped = text.strip()
    if re.fullmatch(r"\}\s*else\s*\{", stripped) or (stripped == "else {" and opened):
        return ["else"]
    if stripped == "}":
        return ["fi"] if opened and opened.pop() == "if" else []
    if stripped.endswith("{") and not _SETS.fullmatch(text):
        opened.append("other")
        return []
    if assigned := _SETS.fullmatch(text):
        return [_assignment(assigned[1], assigned[2], assigned[3].strip())]
    call = re.sub(r"^\s*[&.]\s+", "", stripped)
    return [re.sub(r"(?<=\s)@([A-Za-z_]\w*)", r'"${\1[@]}"', call)]


def _condition(text: str) -> str:
    """``$x -eq "1"`` and ``$x`` as tests; whatever else as one that a variable nobody set decides."""
    if equal := _EQUALS.fullmatch(text):
        return f'[ "${equal[1]}" {"=" if equal[2] == "eq" else "!="} {equal[3]} ]'
    bare = re.fullmatch(r"\s*\$(\w+)\s*", text)
    if "Test-Path" in text and "-not" in text:
        return "false"
    return f'[ -n "${{{bare[1]}}}" ]' if bare else '[ "${condition}" = 1 ]'


def _assignment(name: str, adds: str, value: str) -> str:
    if chosen := _CHOSEN.fullmatch(value):  # if ($env:MODEL) { $env:MODEL } else { "org/name" }
        return f"{name}=${{{chosen[1]}:-{chosen[2].strip(chr(34) + chr(39))}}}"
    if default := _DEFAULT.fullmatch(value):
        return f"{name}={default[1]}"
    if value.startswith(("@(", "(")) and value.endswith(")"):
        inside = value[value.index("(") + 1 : -1]
        if " -" in re.sub(r"\"[^\"]*\"|'[^']*'", "", inside):  # an expression such as $x -split " "
            return f'{name}{adds}=("${{{name}_more}}")'
        return f"{name}{adds}=({re.sub(r',', ' ', inside)})"
    quoted = re.fullmatch(r"\"[^\"]*\"|'[^']*'|[\w./:-]+|\$\w+", value)
    return f"{name}={value}" if quoted else f"unset {name}"
