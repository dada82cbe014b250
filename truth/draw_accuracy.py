"""Draws ``docs/pictures/accuracy.svg``: what the program said of runs that nobody had seen, measured over forecast.

    python truth/draw_accuracy.py

One dot is one group (a source and a model family) by the median of its looks, because runs of a group err together. Bands hold
nine of ten groups. Drawn from ``first_look.jsonl`` and ``speed_first_look.jsonl`` alone, which never change but by new rows.
"""

import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

from vramcast.charts.palette import COLOURS, PHASES, SERIES
from vramcast.charts.pictures import Strip, Strips
from vramcast.charts.svg import WIDE, drawn
from vramcast.truth.first_look import read_looks
from vramcast.truth.scoring import quantile

HERE = Path(__file__).parent
PICTURE = HERE.parent / "docs" / "pictures" / "accuracy.svg"
LOOKS = (HERE / "first_look.jsonl", HERE / "speed_first_look.jsonl")
NAMED = {
    "weights": ("weights", COLOURS["weights"]),
    "kv_pool": ("room for the KV cache", COLOURS["kv_cache"]),
    "overhead": ("engine's overhead", COLOURS["workspace"]),
    "graphs": ("CUDA graphs", COLOURS["graphs"]),
    "allocated": ("training, allocated", COLOURS["activations"]),
    "reserved": ("training, reserved", COLOURS["optimizer"]),
    "device": ("training, device", COLOURS["context"]),
    "tpot": ("time per token", PHASES["decode"]),
    "ttft": ("time to first token", PHASES["prefill"]),
    "tokens_per_s": ("tokens/s", SERIES[2]),
    "step_s": ("training step", SERIES[3]),
}


def picture() -> str:
    """The picture as SVG text, on a white ground."""
    groups: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for look in (look for file in LOOKS for look in read_looks(file)):
        groups[look.measure][look.group].append(look.ratio)
    strips = []
    for measure, (name, colour) in NAMED.items():
        ratios = sorted(median(own) for own in groups[measure].values())
        if ratios:
            low, middle, high = (quantile(ratios, share) for share in (0.05, 0.5, 0.95))
            note = f"{len(ratios)} kinds"
            strips.append(Strip(name, tuple(ratios), colour, low, middle, high, note))
    text = drawn(Strips(
        title="Measured over forecast, of runs that nobody had seen",
        axis="measured / forecast at first look. A dot is one kind of run (source x family), a band holds nine of ten, "
        "a stroke is the median.",
        strips=tuple(strips),
    ))  # fmt: skip
    ground = f'<rect x="0" y="0" width="{WIDE}" height="100%" fill="#ffffff"/>'
    styled = 'style="color:#1f2328;font-family:system-ui,sans-serif"'
    head, body = text.split(">", 1)
    return f"{head} {styled}>{ground}{body}\n"


def main() -> int:
    """Write the picture."""
    PICTURE.write_text(picture(), "utf-8")
    sys.stdout.write(f"wrote {PICTURE.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
