"""Write the terminal pictures of the README (docs/pictures/*.svg) from real answers; add ``--png`` to look at them as PNG too."""

import os
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from vramcast import Serving, Training, forecast
from vramcast.cli.pages.answer import serving_page, training_page
from vramcast.cli.pages.page import COLOURS, Page, wrapped

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


# What vLLM 0.10 and later print when the cache of one request has no room (v1/core/kv_cache_utils.py).
LOG = """$ vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 131072 --gpu-memory-utilization 0.9
ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger
than the available KV cache memory (5.12 GiB). Based on the available memory, the estimated maximum model length is 41920. Try
increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."""


def _explained() -> Page:
    """The pages of that log as one."""
    from vramcast.asking.looking import explain_text
    from vramcast.cli.explain import pages_of

    whole = Page(terminal=True)
    for page in pages_of(explain_text(LOG.replace("larger\n", "larger ").replace("Try\n", "Try "), gpu="4090")):
        whole.lines += page.lines
    return whole


def main() -> None:
    """Write every picture."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.environ["COLUMNS"] = str(WIDTH)
    questions: dict[str, Serving | Training] = {
        "serve-fits": Serving(model="Qwen/Qwen2.5-7B-Instruct", gpu="RTX 4090"),
        "serve-no": Serving(model="meta-llama/Llama-3.1-8B", gpu="RTX 4090", context=32768, concurrency=4),
        "train": Training(model="meta-llama/Llama-3.1-8B", gpu="RTX 4090", method="lora", seq=2048),
    }
    (FOLDER / "explain.svg").write_text(picture(_explained(), "vramcast explain vllm.log --gpu 4090"))
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
