"""A name that the catalogue does not hold, read as the catalogued model that shares its core, quantised as its ending says.

A fine-tune is named after its base (``Hermes-3-Llama-3.1-8B``): a name that holds a catalogued family and size, no other size and
no word for another architecture, has the shapes of that model.
"""

import re
from functools import cache
from typing import Any

import msgspec

from vramcast.errors import QuestionError, nearest, unknown_name
from vramcast.ledger import Assumption
from vramcast.models import reading
from vramcast.models.inventory import Model
from vramcast.models.layers import Attention
from vramcast.models.names import Name, take_apart
from vramcast.models.reading.known import is_by_maker


class Candidate(msgspec.Struct, frozen=True):
    """A catalogued id with the asked core."""

    key: str
    name: Name
    row: reading.Row

    def likeness(self, asked: Name) -> tuple[object, ...]:
        """Sorts the candidate to show and to copy from: same ending, else unquantised, most words in common, then the maker's."""
        common = len(asked.variants & self.name.variants) - len(asked.variants ^ self.name.variants)
        return self.name.ending == asked.ending, not self.name.ending, common, is_by_maker(self.key), -len(self.key), self.key


def by_name(name: str, *, why: str = "") -> Model | None:
    """The catalogued model with this name's core, or None; what was assumed is listed in it, and ``why`` a hub id had to be.

    Raises QuestionError when models of different shapes share the core, and for a catalogued name with a slip of the pen.
    """
    asked = take_apart(name)
    exact = _rows(cores().get(asked.key, ()))
    if not exact and (meant := _misspelled(name)):
        raise unknown_name("model", name, [meant])
    own = [n for n in exact if n.key == n.row.id.lower() and n.key.rpartition("/")[2] == name.lower()]
    near = own or _closest(asked, exact or _rows(_base(asked.key)))
    if not near:
        return None
    if len({n.row.shapes for n in near}) > 1:
        shown = ", ".join(sorted(n.row.id for n in near)[:6])
        raise QuestionError(f"model {name!r} could be any of {shown}, which differ in shape: give the whole id")
    best = max(near, key=lambda n: n.likeness(asked))
    because = f"{name!r} is not in the catalogue, and {why}: read by its name" if why else f"{name!r} read by its name"
    other = set(re.findall(r"\d+", best.key)) - set(re.findall(r"\d+", best.row.id))  # a release or size of its own
    return under_name(name, best.row, because, alias=best.key if other and "/" in best.key else "")


def _misspelled(name: str) -> str | None:
    """The catalogued id that differs by a letter or two and in no number: a slip, where a longer name would be a fine-tune."""
    index = reading.read_index()
    close = nearest(name, (*index.models, *index.aliases), most=1, cutoff=0.95)
    return close[0] if close and re.findall(r"\d+", close[0]) == re.findall(r"\d+", name) else None


def under_name(name: str, row: reading.Row, because: str, *, alias: str = "") -> Model:
    """A row's model under another name, quantised as that name says; both substitutions are listed.

    ``alias``: the id of its own that was meant, which only shares the row's shapes.
    """
    model, ending = reading.model_of(row), take_apart(name).ending
    taken = [Assumption("model", alias or row.id, f"{because}; shapes of {row.id}" if alias else because)]
    if take_apart(row.id).ending != ending or _another_s_copy(name, row.id):
        scheme = _sparing(model, take_apart(name).quantization)
        said = f"the name ends in {ending!r}" if ending else "the name has no quantised ending"
        taken.append(Assumption("quantization", scheme, said))
        model = msgspec.structs.replace(model, quantization=scheme)
    elif model.quantization and take_apart(name).variants & {"bf16", "fp16", "dequantized"}:
        taken.append(Assumption("quantization", None, "the name says 16 bits"))
        model = msgspec.structs.replace(model, quantization=None, dtype="bfloat16")
    elif "base" in take_apart(name).variants and (model.quantization or {}).get("expert_dtype") == "fp4":
        kept = {key: value for key, value in (model.quantization or {}).items() if key != "expert_dtype"}
        taken.append(
            Assumption("quantization", kept, "DeepSeek-V4's experts are in FP4 from post-training on; its base models are FP8")
        )
        model = msgspec.structs.replace(model, quantization=kept)
    if stated := take_apart(name).positions:
        taken.append(Assumption("positions", stated, "the name says so"))
        model = msgspec.structs.replace(model, positions=max(model.positions, stated))
    return msgspec.structs.replace(model, id=name, head_stored=False, assumed=(*model.assumed, *taken))


def _another_s_copy(name: str, own: str) -> bool:
    """Whether a name is that of another publisher's copy, who quantises otherwise than the row's own."""
    maker, _, _ = own.lower().partition("/")
    publisher, slash, _ = name.lower().partition("/")
    return bool(slash) and publisher != maker and take_apart(name).quantization != take_apart(own).quantization


def named_as(model: Model, name: str, because: str) -> Model:
    """A catalogued model asked for by another name, which the answer lists."""
    return msgspec.structs.replace(model, id=name, assumed=(*model.assumed, Assumption("model", model.id, because)))


def _sparing(model: Model, scheme: dict[str, Any] | None) -> dict[str, Any] | None:
    """NVIDIA's FP8 hybrids leave attention layers, and the state-space layer before each, in 16 bits (Nemotron 3 Nano report)."""
    if not scheme or model.family != "nemotron_h" or scheme.get("quant_algo") != "FP8":
        return scheme
    layers = model.layer_list()
    attends = [i for i, block in enumerate(layers) if any(isinstance(m, Attention) for m in block.mixers)]
    before = [max((j for j in range(i) if layers[j].mixers), default=i) for i in attends]
    kept = sorted({*attends, *before})
    return {**scheme, "exclude_modules": [*(f"backbone.layers.{i}.*" for i in kept), "lm_head"]}


# A size in a name: 7b, 8x7b, a3b, e4b, 135m, 16e.
_SIZE = re.compile(r"(?:[ae]?\d[\d.]*|\d+x\d[\d.]*)[bmt]|\d+e")
# Words of models whose shapes are not those of the family and size beside them.
_OTHERWISE = re.compile(
    r"vl|vlm|vision|visual|video|image|omni|audio|asr|tts|voice|speech|ocr|vit|clip|embed(ding)?|rerank(er)?|retriever|reward|rm|prm|"
    r"classifier|moe|draft|eagle\d*|medusa|mlp|speculator(\.\w+)?|mtp|dflash|reap|prun(ed|ing)|sparse|sheared|minitron|puzzle|merge|upscaled|"
    r"tiny|random|rw|e|idefics\d*|blip\d*|instructblip|xcomposer\d*|gte|bge|e5|sfr|col(qwen|pali)[\d.]*|mamba\d*|linear|hybrid|llava|internvl|chatqa2?|ultravox|janus|bitnet|b1.58|lora|adapter|projector|languageonly|"
    r"distil|distilled|layers?|slim|mm|mot|guard4|chameleon|next|diffusion|block|proxy|debug|flavor|release|te|mcore"
)
# Google names Gemma 4's drafters after their targets: an assistant to 31B has 0.5 B parameters.
_DRAFTER = re.compile(r"gemma-?4-.*-assistant")
Places = tuple[tuple[str, Name, reading.Place], ...]


@cache
def cores() -> dict[str, Places]:
    """Every catalogued name by its spelling."""
    index, table = reading.read_index(), dict[str, Places]()
    for key, place in {**{k: a.row for k, a in index.aliases.items()}, **index.models}.items():
        apart = take_apart(key)
        table[apart.key] = (*table.get(apart.key, ()), (key, apart, place))
    return table


def _rows(places: Places) -> list[Candidate]:
    return [Candidate(key, name, reading.row_at(place)) for key, name, place in places]


def _base(asked: str) -> Places:
    """The catalogued names that a longer name holds, words between family and size allowed; the longest wins."""
    words = asked.split("-")
    sizes = [w for w in words if _SIZE.fullmatch(w)]
    if not sizes or any(_OTHERWISE.fullmatch(w) for w in words) or _DRAFTER.search(asked):
        return ()
    known, ahead = _by_family(), words[: words.index(sizes[0])]
    held = [(words[i:j], words[j : j + 1]) for i in range(len(ahead)) for j in range(len(ahead), i, -1)]
    held.sort(key=lambda spans: (len(spans[0]), len("".join(spans[0]))), reverse=True)
    found = (known.get(("-".join(family), frozenset(sizes))) for family, after in held if not _release(after))
    return next(filter(None, found), ())


def _release(after: list[str]) -> bool:
    """Whether the word after a family is one of its releases (``h1``, ``v2``), which has shapes of its own."""
    return bool(after) and re.fullmatch(r"[a-z]{0,2}\d[\d.]*[a-z]?", after[0]) is not None and not _SIZE.fullmatch(after[0])


@cache
def _by_family() -> dict[tuple[str, frozenset[str]], Places]:
    """The same by family and sizes; models of named architectures cannot be anyone's base."""
    table: dict[tuple[str, frozenset[str]], Places] = {}
    for key, places in cores().items():
        words = key.split("-")
        sizes = frozenset(w for w in words if _SIZE.fullmatch(w))
        family = "-".join(w for w in words if w not in sizes)
        if sizes and not any(_OTHERWISE.fullmatch(w) for w in words):
            table[family, sizes] = (*table.get((family, sizes), ()), *places)
    return table


def _closest(asked: Name, near: list[Candidate]) -> list[Candidate]:
    """Those quantised alike, else unquantised; then those with the same words; where shapes differ, the publishers' own files."""
    near = [n for n in near if n.name.ending == asked.ending] or [n for n in near if not n.name.ending] or near
    near = [n for n in near if n.name.variants == asked.variants] or near
    if len({n.row.shapes for n in near}) > 1:
        near = [n for n in near if n.row.trust == "verbatim"] or near
    return near
