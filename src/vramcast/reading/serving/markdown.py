"""Markdown: the fenced blocks of a recipe, each a script, a program or a file, under the heading that it stands below."""

import re

import msgspec

NAME = "Markdown"
_FENCE = re.compile(r"^\s{0,8}(`{3,}|~{3,})\s*\{?\.?([\w+-]*)")
_HEADING = re.compile(r"^#{1,6}\s+(.{1,120}?)\s*#*$")
_MOST_BLOCKS, _MOST_BEGINNINGS = 300, 6


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A fenced block: the language after its fence, its text, and the last heading above it."""

    language: str
    text: str
    heading: str = ""


def is_markdown(text: str) -> bool:
    """Whether a text has fenced blocks."""
    return len(re.findall(r"^\s{0,8}(?:`{3,}|~{3,})", text, re.M)) >= 2


def blocks_of(text: str) -> tuple[Block, ...]:
    """The fenced blocks, in order."""
    found: list[Block] = []
    heading, language, fence = "", "", ""
    held: list[str] = []
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if fence and mark and mark[1].startswith(fence) and not mark[2]:
            found.append(Block(language=language.lower(), text="\n".join(_unprompted(held)), heading=heading))
            fence = ""
        elif fence:
            held.append(line)
        elif mark:
            fence, language, held = mark[1], mark[2], []
        elif title := _HEADING.match(line):
            heading = title[1]
        if len(found) >= _MOST_BLOCKS:
            break
    return tuple(found)


def joined(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """The blocks, with KServe's runtimes joined to the service after each: two files that make one deployment."""
    found: list[Block] = []
    for block in blocks:
        service = re.search(r"^kind:\s*InferenceService\b", block.text, re.M)
        runtime = found[-1] if found and re.search(r"^kind:\s*ServingRuntime\b", found[-1].text, re.M) else None
        if service and runtime and not re.search(r"^kind:\s*InferenceService\b", runtime.text, re.M):
            found[-1] = msgspec.structs.replace(runtime, text=f"{runtime.text}\n---\n{block.text}")
        else:
            found.append(block)
    return tuple(found)


def beginnings_of(text: str) -> tuple[str, ...]:
    """What stands before the last keys that are hardly indented, the longest first, at most six."""
    lines = text.splitlines()
    ends = [place for place, line in enumerate(lines) if place > 1 and re.match(r" {0,2}[\w.-]+:\s*$", line)]
    return tuple("\n".join(lines[:end]) for end in ends[: -_MOST_BEGINNINGS - 1 : -1])


def _unprompted(lines: list[str]) -> list[str]:
    """Lines of an interactive Python session without its prompts."""
    if not any(re.match(r">>> \w", line) for line in lines):
        return lines
    return [re.sub(r"^(?:>>>|\.\.\.) ?", "", line) for line in lines]
