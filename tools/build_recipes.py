"""Write docs/recipes.md: what each framework keeps per parameter, from its own recipe. ``page()`` is what the test compares."""

from pathlib import Path
from typing import get_args

from vramcast.models.reading import read_model
from vramcast.training.forecast import TrainingForecast, forecast_training
from vramcast.training.frameworks import names
from vramcast.training.frameworks.common import LIMITS
from vramcast.training.recipe.draft import Option, options, part_types
from vramcast.training.recipe.parts import Kind
from vramcast.units import GiB
from vramcast.workload import Training

TARGET = Path(__file__).parents[1] / "docs" / "recipes.md"
MODEL = "meta-llama/Llama-2-13b-hf"
STATES = ("weights", "gradients", "optimizer", "master_weights")
MOMENTS = ("temporaries", "gradient_copy", "communication")
_INTRO = f"""# The same words, {len(names())} recipes

"13B, AdamW, bf16, batch 1, 1,024 tokens, one card": what each framework keeps for those words when nothing else is said, in bytes
per trained parameter ({MODEL.rsplit("/", 1)[-1]}), what its optimizer step makes for a moment, and where the step peaks.
Written by `tools/build_recipes.py` from the program's own recipes; a test holds every line.
`vramcast train --json` lists every part of a recipe under `recipe`, and under `assumed` where each came from."""
_TABLE = """
| framework | weights | gradients | optimizer | master | kept | at the step | recomputes | loss | peak | highest at |
|---|---|---|---|---|---|---|---|---|---|---|"""
_LACKS = """
## What a framework has no code for

| framework | lacks | DeepSpeed ZeRO | source |
|---|---|---|---|"""

_PARTS = """
## Every decision of a recipe, by part

`--set NAME=VALUE` overrides one of them: by its flat name (`--set norm=fused`) or with its part (`--set kernels.norm=fused`).
A word that is not listed is refused with the nearest one. A framework overrides most defaults: `vramcast train --json` lists
what holds."""
_FIELDS = """
| option | takes | default | what it is |
|---|---|---|---|"""


def page() -> str:
    """The whole page."""
    rows = [_row(name) for name in names()]
    lacks = [f"| {n} | {', '.join(r.lacks) or '-'} | {'yes' if r.zero else 'no'} | {r.source} |" for n, r in LIMITS.items()]
    return "\n".join([_INTRO, _TABLE, *rows, _LACKS, *lacks, _PARTS, *(_part(part) for part in part_types())]) + "\n"


def _part(part: str) -> str:
    """One part of the recipe: what it is, and a line for each of its fields."""
    summary = (part_types()[part].__doc__ or "").splitlines()[0]
    lines = [_field(option) for option in options().values() if option.part == part]
    return "\n".join([f"\n### {part}\n\n{summary}", _FIELDS, *lines])


def _field(option: Option) -> str:
    default = option.default if option.default not in ("", ()) else "-"
    return f"| `{option.name}` | {_takes(option)} | {default} | {option.meaning} |"


def _takes(option: Option) -> str:
    """Its words, or the kind of value."""
    if option.name == "checkpointing":
        return ", ".join(get_args(Kind))
    if option.words:
        return ", ".join(str(word) for word in option.words if word)
    plain = getattr(option.type, "__origin__", option.type)
    return getattr(plain, "__name__", str(plain)).replace(" | None", " or None")


def _row(name: str) -> str:
    answer = _answer(name)
    recipe, parts = answer.recipe, _per_parameter(answer)
    kept = [parts.get(term, 0.0) for term in STATES]
    step = sum(parts.get(term, 0.0) for term in MOMENTS)
    sizes = " | ".join(f"{size:.1f}" for size in (*kept, sum(kept), step))
    peak = answer.worst.peak
    return f"| {name} | {sizes} | {recipe.recomputation.policy} | {recipe.loss.kind} | {peak.bytes / GiB:.1f} GiB | {peak.name} |"


def _answer(name: str) -> TrainingForecast:
    question = Training(model=MODEL, framework=name, optimizer="adamw", micro_batch=1, seq=1024)
    return forecast_training(question, model=read_model(MODEL))


def _per_parameter(answer: TrainingForecast) -> dict[str, float]:
    step = answer.worst.instants[-1]
    return {term.name: term.bytes / answer.trainable_parameters for term in step.terms}


if __name__ == "__main__":
    TARGET.write_text(page())
