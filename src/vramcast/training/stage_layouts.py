"""How layers are cut into pipeline stages: by a framework's rule, or as Megatron's layouts write out, "Et*3|(tt|)*6L".

E is the embedding, t a layer, m a prediction head, L the loss; "|" ends a chunk, "x*3" and "(...)*3" repeat. Chunks are dealt to
the stages in turn. Source: Megatron-LM at d98e8a64d, core/transformer/pipeline_parallel_layer_layout.py; uneven ends and ends
that count as layers: core/transformer/transformer_block.py, get_num_layers_to_build. DeepSpeed 0.6.0, runtime/utils.py,
partition_balanced; torchtitan at 3c84ce095, distributed/pipeline.py, generate_llm_fqn_per_model_part.
"""

import re
from itertools import pairwise

from vramcast.errors import QuestionError
from vramcast.training.recipe.parts import Cut

Spans = list[tuple[int, int]]
_GROUP, _REPEAT = re.compile(r"\(([^()]+)\)\*(\d{1,4})"), re.compile(r"(.)\*(\d{1,4})")
MOST_CHUNKS = 4096


def stage_spans(layers: int, *, pp: int, vpp: int, cut: Cut, layout: str = "") -> list[Spans]:
    """First layer and end of each chunk, stage by stage: as a written layout says, or as a framework cuts.

    ``even``: every chunk as long as the others; where layers do not divide, as ``even_ends`` with embedding and head as a layer
    each, and the first stages one longer where that leaves a stage without layers. ``balanced``: as many as the fullest needs,
    one stage after another. Raises QuestionError for a layout that is none of these layers or stages, and for a cut that leaves
    a stage without layers.
    """
    if layout:
        return layout_spans(layout, layers=layers, pp=pp, vpp=vpp)
    if cut in ("balanced", "balanced_ends"):
        spans = balanced_bounds(layers, pp, ends=cut == "balanced_ends")
        if any(start >= stop for start, stop in spans):
            raise QuestionError(
                f"{layers} layers cut into {pp} stages as evenly as DeepSpeed does leave a stage without layers, "
                "for which there are no rules: use a smaller pp"
            )
        return [[span] for span in spans]
    if cut == "even" and layers % (pp * vpp) == 0:
        return _dealt([layers // (pp * vpp)] * (pp * vpp), pp)
    try:
        return layout_spans(balanced_layout(layers, pp, vpp), layers=layers, pp=pp, vpp=vpp)
    except QuestionError:
        if cut == "even_ends" or vpp > 1 or layers < pp:
            raise
        each, more = divmod(layers, pp)
        return _dealt([each + (stage < more) for stage in range(pp)], pp)


def _dealt(depths: list[int], pp: int) -> list[Spans]:
    """Chunks so long, dealt to the stages in turn."""
    ends = [sum(depths[:place]) for place in range(len(depths) + 1)]
    return [list(pairwise(ends))[stage::pp] for stage in range(pp)]


def balanced_bounds(layers: int, stages: int, *, ends: bool) -> Spans:
    """First and last layer of each stage: as many as the fullest needs, one stage after another, until none is left.

    ``ends``: embedding and head count as layers of the first and the last stage (type:transformer|embedding).
    """
    counted = layers + 2 * ends
    most = -(-counted // stages)
    cuts = [min(most * i, counted) - ends for i in range(stages + 1)]
    return [(max(0, start), min(layers, stop)) for start, stop in pairwise(cuts)]


def parse_layout(text: str) -> list[str]:
    """The chunks in the order of their layers, one letter for each thing held. Raises QuestionError for what is no layout."""
    spelt = _REPEAT.sub(_repeated, _GROUP.sub(_repeated, text.replace(",", "").replace(" ", "")))
    chunks = spelt.split("|")
    plain = "".join(chunks)
    if not re.fullmatch(r"Et*m*L", plain) or len(chunks) > MOST_CHUNKS:
        raise QuestionError(
            f"stage_layout {text[:60]!r} is no pipeline layout: it begins with E, ends with L and has t for a layer between, "
            "as in Et*3|(tt|)*6L"
        )
    return chunks


def _repeated(found: re.Match[str]) -> str:
    if len(found[1]) * int(found[2]) > 4 * MOST_CHUNKS:
        raise QuestionError(f"stage_layout repeats {found[1][:20]!r} {found[2]} times")
    return found[1] * int(found[2])


def chunks_of(text: str, pp: int) -> int:
    """Chunks of each stage. Raises QuestionError where the stages do not divide them."""
    chunks = parse_layout(text)
    if len(chunks) % pp:
        raise QuestionError(f"stage_layout {text[:60]!r} has {len(chunks)} chunks, which do not divide into pp {pp} stages")
    return len(chunks) // pp


def layout_spans(text: str, *, layers: int, pp: int, vpp: int) -> list[Spans]:
    """First layer and end of each chunk, stage by stage.

    Raises QuestionError where the layout has other layers than the model, other chunks than vpp, or a stage without a layer.
    """
    chunks = parse_layout(text)
    there = sum(chunk.count("t") for chunk in chunks)
    if there != layers:
        raise QuestionError(f"stage_layout {text[:60]!r} has {there} layers, and the model {layers}")
    if chunks_of(text, pp) != vpp:
        raise QuestionError(
            f"stage_layout {text[:60]!r} cuts each stage into {chunks_of(text, pp)} chunks: use vpp {len(chunks) // pp}"
        )
    stages = _dealt([chunk.count("t") for chunk in chunks], pp)
    if not all(any(stop > start for start, stop in stage) for stage in stages):
        raise QuestionError(f"stage_layout {text[:60]!r} leaves a stage without layers, for which there are no rules")
    return stages


def uneven_layout(layers: int, pp: int, vpp: int, *, first: int | None = None, last: int | None = None) -> str:
    """The layout whose first and last stage hold so many layers, and the stages between them as many as each other.

    Raises QuestionError where what is left does not divide.
    """
    ends, between = [n for n in (first, last) if n is not None], pp - sum(n is not None for n in (first, last))
    left = layers - sum(ends)
    if left < 0 or (left % between if between else left) or any(n % vpp for n in ends) or (between and left // between % vpp):
        raise QuestionError(
            f"{layers} layers with {first if first is not None else 'as many'} on the first stage and "
            f"{last if last is not None else 'as many'} on the last do not divide over pp {pp} stages of {vpp} chunks"
        )
    each = left // between if between else 0
    depths = [first if first is not None else each, *[each] * max(0, pp - 2), last if last is not None else each][:pp]
    return _written([depth // vpp for _ in range(vpp) for depth in depths])


def counted_ends(layers: int, pp: int, vpp: int, *, embedding: bool, loss: bool) -> str:
    """The layout in which the embedding, the loss or both count as a layer of their stage.

    Source: --account-for-embedding-in-pipeline-split, --account-for-loss-in-pipeline-split. Raises QuestionError where they do
    not divide.
    """
    counted, chunks = layers + embedding + loss, pp * vpp
    if counted % chunks:
        raise QuestionError(f"{layers} layers, embedding and loss as layers, do not divide over pp {pp} stages of {vpp} chunks")
    depths = [counted // chunks] * chunks
    depths[0] -= embedding
    depths[-1] -= loss
    return _written(depths)


def balanced_layout(layers: int, pp: int, vpp: int) -> str:
    """The layout whose chunks differ by one layer at most, embedding and loss counted as a layer each.

    Raises QuestionError where they leave a stage without layers.
    """
    chunks = pp * vpp
    each, more = divmod(layers + 2, chunks)
    depths = [each + (place < more) for place in range(chunks)]
    depths[0], depths[-1] = depths[0] - 1, depths[-1] - 1
    if min(depths) < 0 or not all(sum(depths[stage::pp]) for stage in range(pp)):
        raise QuestionError(
            f"{layers} layers are too few for pp {pp} stages of {vpp} chunks, embedding and loss beside them: "
            f"use a smaller pp{' or vpp' if vpp > 1 else ''}"
        )
    return _written(depths)


def _written(depths: list[int]) -> str:
    return "E" + "|".join("t" * depth for depth in depths) + "L"
