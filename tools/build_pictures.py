"""Write the terminal pictures of the README (docs/pictures/*.svg) from real answers; add ``--png`` to look at them as PNG too."""

import os
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from vramcast import Serving, Training, forecast
from vramcast.cli.drawing import serving_page, training_page
from vramcast.cli.page import COLOURS, Page, wrapped

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
WIDTH = 112


def picture(page: Page, title: str) -> str:
    """The page as an SVG of a terminal."""
    with Path("/dev/null").open("w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True, color_system="truecolor", highlight=False)
        for line in page.lines:
            for piece in wrapped(line, WIDTH):
                console.print(Text.assemble(*((text, COLOURS.get(style, style)) for text, style in piece)))
        return console.export_svg(title=title)


def main() -> None:
    """Write every picture."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.environ["COLUMNS"] = str(WIDTH)
    questions: dict[str, Serving | Training] = {
        "serve-fits": Serving(model="Qwen/Qwen2.5-7B-Instruct", gpu="RTX 4090"),
        "serve-no": Serving(model="meta-llama/Llama-3.1-8B", gpu="RTX 4090", context=32768, concurrency=4),
        "train": Training(model="meta-llama/Llama-3.1-8B", gpu="RTX 4090", method="lora", seq=2048),
    }
    for name, question in questions.items():
        draw = serving_page if isinstance(question, Serving) else training_page
        kind = "serve" if isinstance(question, Serving) else f"train --method {question.method}"
        svg = picture(draw(forecast(question), terminal=True), f"vramcast {kind} {question.model} --gpu {question.gpu!r}")
        (FOLDER / f"{name}.svg").write_text(svg)
        if "--png" in sys.argv:
            import vl_convert

            (FOLDER / f"{name}.png").write_bytes(vl_convert.svg_to_png(svg))


if __name__ == "__main__":
    main()
