"""``vramcast models``: what a model is, from its inventory; without a name, the models known offline."""

import sys
from typing import Any

import click

from vramcast.cli.help.grouped import CONTEXT, GroupedCommand
from vramcast.cli.pages.page import Page
from vramcast.models.describe import block_line, cache_bytes, cache_bytes_per_token, index_bytes, state_bytes_per_sequence
from vramcast.models.inventory import Block, Model, resolved_id
from vramcast.units import count, gib

_PRECISIONS = ("fp32", "bf16", "fp8", "int8", "awq", "nf4")
_EPILOG = """\b
Examples:
  vramcast models deepseek-ai/DeepSeek-V3
  vramcast models ./my-model --tensors
  vramcast models Qwen/Qwen3-30B-A3B --flops --seq 8K
  vramcast models --find qwen3
"""

_ENDS = (
    "fp8, awq and nf4 keep embedding and head in 16 bits; int8 is one byte for every parameter, as calculators count it "
    "(llm.int8 and w8a8 keep the ends too)"
)


@click.command(cls=GroupedCommand, epilog=_EPILOG, context_settings=CONTEXT)
@click.argument("model", required=False)
@click.option("--find", metavar="TEXT", help="List known models whose id contains TEXT.")
@click.option("--tensors", is_flag=True, help="List every tensor with its shape, role and shard axis.")
@click.option("--flops", is_flag=True, help="FLOPs and bytes of a forward pass by layer kind, and as other counters have it.")
@click.option("--seq", metavar="TOKENS", default="2048", show_default=True, help="Length of the sequence that --flops counts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(model: str | None, find: str | None, *, tensors: bool, flops: bool, seq: str, as_json: bool) -> int:
    """Show what MODEL is: parameters, sizes by precision, largest block, cache per token, layer map."""
    if model is None:
        return _list(find or "", as_json)
    from vramcast.models.reading import read_model

    found = read_model(model)
    if flops:
        from vramcast.cli.flops import show

        return show(found, seq=seq, as_json=as_json)
    if as_json:
        _print_json(_facts(found, tensors=tensors))
    elif tensors:
        for name, tensor in found.all_tensors():
            shard = f" shard {tensor.shard}" if tensor.shard is not None else ""
            click.echo(f"{name}\t{list(tensor.shape)}\t{tensor.role}{shard}")
    else:
        _draw(found)
    return 0


def _list(text: str, as_json: bool) -> int:
    from vramcast.asking.looking import find_models

    names = find_models(text)
    if as_json:
        _print_json({"schema": "vramcast/1", "models": names})
    else:
        click.echo("\n".join(names) or f"no known model contains {text!r}")
    return 0


def _draw(model: Model) -> None:
    page = Page()
    typed = f" (asked: {model.id})" if resolved_id(model) != model.id else ""
    page.line((resolved_id(model), "title"), (typed, "faint"), "  ", (model.family, "faint"))
    _draw_parameters(page, model)
    _draw_layers(page, model)
    _draw_sequence(page, model)
    page.blank()
    page.line(("read from ", "faint"), (str(model.loaded_from), "faint"), hang=2)
    for taken in model.assumed:
        page.line("assumed: ", f"{taken.name} = {taken.value}", (f"  {taken.because}", "faint"))
    for what in model.unmodelled:
        page.line(("not modelled: ", "warn"), what, hang=2)
    page.show()


def _draw_parameters(page: Page, model: Model) -> None:
    """How many there are, and what they weigh in each precision."""
    page.heading("Parameters")
    rows = [("loaded", f"{model.parameters:,}", count(model.parameters))]
    if model.active_parameters != model.parameters:
        rows.append(("active per token", f"{model.active_parameters:,}", count(model.active_parameters)))
    if model.stored_parameters != model.parameters:
        rows.append(("stored in the checkpoint", f"{model.stored_parameters:,}", count(model.stored_parameters)))
    largest = max(model.blocks, key=lambda b: b.elements)
    rows.append(("largest block", f"{largest.elements:,}", count(largest.elements)))
    page.table(rows, styles=("", "number", "faint"), right=frozenset({1}))
    page.heading("Weights by precision")
    rows = [(name, gib(size), _quality(name, model)) for name, size in _sizes(model)]
    page.table(rows, styles=("", "number", "faint"), right=frozenset({1}))
    page.line("  ", (_ENDS, "faint"), hang=2)


def _draw_layers(page: Page, model: Model) -> None:
    page.heading("Layers")
    for block in sorted(model.blocks, key=lambda b: b.indices[0]):
        page.line("  ", *block_line(block))
    for tower in model.towers:
        note = "stored, not loaded" if tower.stored_only else ""
        page.line(
            "  ",
            (f"{tower.name.removesuffix('.')} ({tower.kind})".ljust(36) + "  ", "title"),
            count(tower.elements),
            f" parameters  {note}",
        )


def _draw_sequence(page: Page, model: Model) -> None:
    """What one sequence keeps: the cache by token and whole, the state of recurrent layers."""
    page.heading("One sequence")
    whole, least = cache_bytes_per_token(model), cache_bytes(model, model.positions)
    page.line("  cache per token (16-bit, every layer kept whole)  ", (f"{whole:,} B", "number"))
    if model.positions and least < whole * model.positions:
        page.line(f"  cache of {model.positions:,} tokens, windows kept".ljust(52), (gib(least), "number"),
                  (f"  (whole: {gib(whole * model.positions)}; vramcast serve says which an engine keeps)", "faint"))  # fmt: skip
    if keys := index_bytes(model, 1):
        page.line("  keys of the sparse indexer, per token (fp8)       ", (f"{keys:,} B", "number"))
    if state := state_bytes_per_sequence(model):
        page.line("  fixed state (16-bit)                              ", (gib(state), "number"))
    page.line("  positions                                         ", (f"{model.positions:,}", "number"))


def _sizes(model: Model) -> list[tuple[str, int]]:
    from vramcast.models.quantization import scheme_for, weight_bytes

    own = scheme_for(model)
    rows = [(f"as published ({own.name})", weight_bytes(model, own))]
    plain = model if model.quantization is None else _unquantised(model)
    return rows + [(q, weight_bytes(plain, scheme_for(plain, quant=q))) for q in _PRECISIONS]


def _quality(name: str, model: Model) -> str:
    """What the scheme costs in quality, as published for the model nearest in size."""
    from vramcast.models.quantization.quality import published_quality

    found = published_quality(name, parameters=model.parameters)
    return found.text if found else ""


def _unquantised(model: Model) -> Model:
    import msgspec

    return msgspec.structs.replace(model, quantization=None)


def _facts(model: Model, *, tensors: bool) -> dict[str, Any]:
    largest = max(model.blocks, key=lambda b: b.elements)
    facts: dict[str, Any] = {
        "schema": "vramcast/1",
        "model": {
            "id": resolved_id(model),
            "family": model.family,
            "parameters": model.parameters,
            "active_parameters": model.active_parameters,
            "stored_parameters": model.stored_parameters,
            "layers": model.layers,
            "hidden": model.hidden,
            "vocab": model.vocab,
            "positions": model.positions,
            "dtype": model.dtype,
            "tied": model.tied,
            "source": model.loaded_from,
        },
        "weights_bytes": dict(_sizes(model)),
        "quality": _qualities(model),
        "largest_block": {"name": largest.name, "parameters": largest.elements},
        "cache_bytes_per_token": cache_bytes_per_token(model),
        "cache_bytes_at_positions": cache_bytes(model, model.positions),
        "state_bytes_per_sequence": state_bytes_per_sequence(model),
        "blocks": [_block(b) for b in model.blocks],
        "assumed": [{"name": a.name, "value": a.value, "because": a.because} for a in model.assumed],
        "unmodelled": list(model.unmodelled),
    }
    if tensors:
        facts["tensors"] = [
            {"name": name, "shape": list(t.shape), "role": t.role, "shard": t.shard, "kind": t.kind}
            for name, t in model.all_tensors()
        ]
    return facts


def _qualities(model: Model) -> dict[str, Any]:
    """By scheme the published figure of the model nearest in size, with its source."""
    import msgspec

    from vramcast.models.quantization.quality import published_quality

    found = {name: published_quality(name, parameters=model.parameters) for name, _ in _sizes(model)}
    return {name: {**msgspec.to_builtins(one), "text": one.text} for name, one in found.items() if one is not None}


def _block(block: Block) -> dict[str, Any]:
    import msgspec

    return {
        "name": block.name,
        "indices": list(block.indices),
        "parameters": block.elements,
        "active_parameters": block.active_elements,
        "mixers": [msgspec.to_builtins(m) for m in block.mixers],
        "feedforward": msgspec.to_builtins(block.feedforward),
    }


def _print_json(value: Any) -> None:
    import msgspec

    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
