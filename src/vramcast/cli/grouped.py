"""Help in groups: an option says which group it belongs to, and ``--help`` shows one section per group, in order."""

from collections.abc import Callable
from typing import Any

import click

CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class GroupedOption(click.Option):
    """An option with the heading of its section."""

    def __init__(self, *args: Any, group: str = "Other", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help shows its options under their headings, in the order in which the headings first appear."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group; what names none (``--help``) comes last."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(parameter, "group", "Other"), []).append(record)
        for heading in sorted(sections, key=lambda name: name == "Other"):
            with formatter.section(heading):
                formatter.write_dl(sections[heading])


def group(heading: str) -> Callable[..., Callable[[Any], Any]]:
    """``click.option`` for one section of the help."""

    def option(*names: str, **settings: Any) -> Callable[[Any], Any]:
        return click.option(*names, cls=GroupedOption, group=heading, **settings)

    return option
