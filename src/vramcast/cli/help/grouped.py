"""Help as people read it: options under their headings, defaults and limits in words, examples that never run off the line."""

import re
from collections.abc import Callable
from typing import Any

import click

CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_KINDS = {"INTEGER RANGE": "N", "FLOAT RANGE": "X", "INTEGER": "N", "FLOAT": "X", "TEXT": "WORD"}
_KIND = re.compile(r"(?<= )(INTEGER RANGE|FLOAT RANGE|INTEGER|FLOAT|TEXT)$")
_DEFAULT = re.compile(r"default: \(([^()]*)\)")
_BETWEEN = re.compile(r"(?<=[\[ ])(\d+)<=x<=(\d+)(?=\])")
_AT_LEAST = re.compile(r"(?<=[\[ ])x>=(\d+)(?=\])")
# A flag with its value, or what stands before the first one; nothing inside quotes is cut.
_ATTACHED = re.compile(r"""(?:-[^"'\s]*|[^-"'\s][^"'\s]*|["'][^"']*["'])+(?: (?!-)(?:"[^"]*"|'[^']*'|[^\s"'])+)*""")


class GroupedOption(click.Option):
    """An option with the heading of its section."""

    def __init__(self, *args: Any, group: str = "Other", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help shows its options under their headings, in the order in which the headings first appear."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group; what names none (``--help``) comes last. Arguments stand in the usage line."""
        sections: dict[str, list[tuple[str, str]]] = {}
        options = [parameter for parameter in self.get_params(ctx) if isinstance(parameter, click.Option)]
        last = "Other" if any(isinstance(option, GroupedOption) for option in options) else "Options"
        for option in options:
            record = option.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(option, "group", last), []).append(in_words(*record))
        for heading in sorted(sections, key=lambda name: name == last):
            with formatter.section(heading):
                formatter.write_dl(sections[heading])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, each long one gone on below, so that it can still be copied."""
        write_epilog(self.epilog, formatter)


def write_epilog(epilog: str | None, formatter: click.HelpFormatter) -> None:
    """The text under a help; its lines as they stand where they are short enough."""
    if epilog:
        formatter.write_paragraph()
        for line in epilog.replace("\b\n", "").rstrip().splitlines():
            formatter.write("\n".join(f"  {part}" if part else "" for part in folded(line, formatter.width - 2)) + "\n")


def folded(line: str, width: int) -> list[str]:
    r"""A line in pieces of at most ``width``: a command before its flags with the shell's ``\\``, a sentence between words."""
    if len(line) <= width:
        return [line]
    margin = " " * (len(line) - len(line.lstrip()))
    command, remark = _remark(line)
    if not command.strip().startswith(("vramcast", "vllm", "kubectl", "tail", "pbpaste")):
        return _filled(line.split(), width, margin, margin, "")
    words = _ATTACHED.findall(command.strip())
    below = margin + " " * 6
    said = _filled(remark.split(), width, below, below, "") if remark else []
    return [*_filled(words, width, margin, margin + "    ", " \\"), *said]


def _remark(line: str) -> tuple[str, str]:
    """A command and what is said behind it, which two spaces or more set apart."""
    found = re.search(r"(?<=\S) {2,}(?=\S)", line)
    return (line[: found.start()], line[found.end() :].strip()) if found else (line, "")


def _filled(words: list[str], width: int, first: str, later: str, joint: str) -> list[str]:
    """Lines of as many words as fit, ``joint`` behind every line but the last."""
    lines = [first + words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) + len(joint) > width:
            lines[-1] += joint
            lines.append(later + word)
        else:
            lines[-1] += f" {word}"
    return lines


def in_words(names: str, text: str) -> tuple[str, str]:
    """An option as click tells it, with ``N`` for ``INTEGER RANGE`` and ``1 to 7`` for ``1<=x<=7``."""
    text = _AT_LEAST.sub(r"at least \1", _BETWEEN.sub(r"\1 to \2", _DEFAULT.sub(r"default: \1", text)))
    return _KIND.sub(lambda kind: _KINDS[kind[0]], names), text


def group(heading: str) -> Callable[..., Callable[[Any], Any]]:
    """``click.option`` for one section of the help."""

    def option(*names: str, **settings: Any) -> Callable[[Any], Any]:
        return click.option(*names, cls=GroupedOption, group=heading, **settings)

    return option
