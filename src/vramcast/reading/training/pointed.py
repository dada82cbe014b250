"""DeepSpeed's JSON, where another file points to it, holds it, or tells its stage by the name of one that is not at hand."""

import re
from pathlib import Path

from vramcast.reading.beside import path_from
from vramcast.reading.training.formats import rules_of
from vramcast.reading.training.keys import apply, flat
from vramcast.reading.training.mappings import contents, parsed
from vramcast.reading.training.settings import UNSET, Settings
from vramcast.untrusted import printable


def read_pointed(settings: Settings, folder: Path) -> list[str]:
    """DeepSpeed's JSON, where another file points to it or holds it."""
    pointed = settings.get("file.deepspeed")
    settings.drop("file.deepspeed")
    if isinstance(pointed, dict):
        rules = rules_of("deepspeed")
        apply(settings, flat(pointed), rules.RULES, rules.IDLE, where="deepspeed")
        return ["deepspeed"]
    if not pointed or str(pointed) in ("False", "True", *map(str, UNSET)):
        return []
    at = path_from(folder, str(pointed), inside=settings.folders)
    if at is None:
        if not stage_by_name(settings, str(pointed)):
            settings.missing.append(printable(str(pointed))[:200])
        return []
    rules = rules_of("deepspeed")
    apply(settings, flat(parsed(at, contents(at))), rules.RULES, rules.IDLE, where=at.name)
    return ["deepspeed"]


def stage_by_name(settings: Settings, file: str) -> bool:
    """Whether the name of a DeepSpeed file that is not at hand tells its stage: ds_z3_config.json, zero2_offload.json."""
    leaf = printable(file.rsplit("/", 1)[-1].lower())[:60]
    stage = re.search(r"(?:zero|stage|_z|^z)[-_]?([0-3])(?!\d)", leaf)
    if stage is None:
        return False
    settings.put("zero", int(stage[1]), f"the name of {leaf}, which is not at hand")
    if "offload" in leaf:
        settings.add("offload", "optimizer", f"the name of {leaf}")
    settings.unread.append(f"{leaf} (not at hand: its stage is read from its name; give it with --from for its buckets)")
    return True
