"""The scheme of one model: how each of its tensors is stored, decided by the checkpoint's own config or by name.

Without a config's word the convention of every quantiser is assumed: linear layers of the decoder are stored in the scheme's
format; embeddings, output head, norms, routers, convolutions, biases and vision or audio towers stay in 16 bits. What a plain
checkpoint does not ask (tables of formats, readers of configs, patterns of names) is imported where it is asked.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from vramcast.errors import ConfigError, QuestionError, unknown_name
from vramcast.models.config import Config
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.quantization.plan import PLAIN, Format, Plan, Rule
from vramcast.units import SPOKEN, dtype_name

if TYPE_CHECKING:
    from vramcast.models.quantization.exact import Exact
    from vramcast.models.quantization.patterns import Patterns


_WHY = {
    "embedding": "a lookup, not a matrix product",
    "position": "a lookup, not a matrix product",
    "head": "quantisers leave the output head alone",
    "norm": "vectors",
    "bias": "vectors",
    "router": "small and decides which expert runs",
    "conv": "short convolution kernels",
    "state": "recurrence constants",
}


class Unquantized(msgspec.Struct, frozen=True, kw_only=True):
    """What stays in its original type: a role or a tower, how many elements, and why."""

    what: str
    elements: int
    why: str


class Scheme:
    """The storage of one model's tensors. Build it with ``scheme_for``.

    ``name``: what to print; ``dtype``: the type of everything that is not quantised; ``plan``: the rules, None when nothing is.
    ``exact``: where the model's files were read, their headers decide before any rule.
    """

    __slots__ = ("_exact", "_ignored", "_model", "_targets", "base", "dtype", "name", "plan")

    def __init__(self, model: Model, *, dtype: str, plan: Plan | None = None, exact: bool = False) -> None:
        self._model = model
        self._exact = _read_exactly(model, PLAIN[dtype]) if exact and model.stored else None
        self.dtype = dtype
        self.base = PLAIN[dtype]
        self.plan = plan
        self.name = plan.name if plan else (self._exact and self._exact.label) or dtype
        self._ignored, self._targets = _named_modules(plan) if plan else (None, ())

    def format_of(self, tensor: Tensor, *, at: str = "", tower: bool = False) -> Format:
        """The format of one tensor under its full name."""
        generic, number = _numbered(at) if at else ("", -1)
        return next(iter(self.formats(tensor, prefix=generic, indices=(number,), tower=tower)))

    def formats(
        self, tensor: Tensor, *, prefix: str = "", indices: Sequence[int] = (-1,), tower: bool = False
    ) -> dict[Format, int]:
        """In how many of the layers ``indices`` the tensor has which format; ``prefix`` holds "{}" for the layer number."""
        if self._exact is not None:
            return self._by_header(self._exact, tensor, prefix, indices, tower=tower)
        return self._by_rule(tensor, prefix, indices, tower=tower)

    def _by_header(
        self, exact: "Exact", tensor: Tensor, prefix: str, indices: Sequence[int], *, tower: bool
    ) -> dict[Format, int]:
        found: dict[Format, int] = {}
        for index in indices:
            form = exact.format(tensor, prefix, index) or next(iter(self._by_rule(tensor, prefix, (index,), tower=tower)))
            found[form] = found.get(form, 0) + 1
        return found

    def _by_rule(self, tensor: Tensor, prefix: str, indices: Sequence[int], *, tower: bool) -> dict[Format, int]:
        fixed = self._fixed(tensor, tower=tower)
        if fixed is not None:
            return {fixed: len(indices)}
        module = tensor.name.replace("{}", "0").removesuffix(".weight")
        rest, found = tuple(indices), dict[Format, int]()
        ignored = self._ignored.layers(prefix, module, rest) if self._ignored else frozenset()
        for form, layers in [(self.base, ignored), *self._ruled(tensor, prefix, module, rest, ignored)]:
            if layers:
                found[form] = found.get(form, 0) + len(layers)
        return found

    @property
    def is_exact(self) -> bool:
        """Whether file headers decide."""
        return self._exact is not None

    @property
    def kept(self) -> tuple[Unquantized, ...]:
        """What stays in ``dtype`` in this model and why, largest first; empty when the scheme quantises nothing."""
        if self.plan is None:
            return ()
        found: dict[tuple[str, str], int] = {}
        for tensor, block, tower in walk(self._model):
            layers = self._kept_layers(tensor, block, tower)
            if layers:
                key = _reason(tensor, tower, named=self._fixed(tensor, tower=tower is not None and tower.kind != "mtp") is None)
                found[key] = found.get(key, 0) + tensor.elements * layers
        largest = sorted(found.items(), key=lambda item: -item[1])
        return tuple(Unquantized(what=what, elements=n, why=why) for (what, why), n in largest)

    def _kept_layers(self, tensor: Tensor, block: Block | None, tower: Tower | None) -> int:
        prefix, indices = (block.name, block.indices) if block else ("", (-1,))
        side = tower is not None and tower.kind != "mtp"
        forms = self.formats(tensor, prefix=prefix, indices=indices, tower=side)
        return sum(n for form, n in forms.items() if form.name in PLAIN)

    def _fixed(self, tensor: Tensor, *, tower: bool) -> Format | None:
        """The format when no rule can change it: an own dtype, a role that quantisers skip, a tower; None for a linear layer."""
        plan = self.plan
        if tensor.dtype is not None or tensor.kind == "buffer":
            return PLAIN.get(tensor.dtype or self.dtype, self.base)
        if plan is None:
            return self.base
        if tensor.role == "head":
            return plan.head or self._named(tensor) or (None if plan.everywhere else self.base)
        if len(tensor.shape) < 2 or tensor.role.rpartition(".")[2] in _WHY:
            return None if plan.everywhere and tensor.role == "embedding" else self.base
        return self.base if tower and not plan.towers else None

    def _named(self, tensor: Tensor) -> Format | None:
        """The format of the rule that names this very module, if any."""
        module = tensor.name.removesuffix(".weight")
        pairs = zip(self.plan.rules if self.plan else (), self._targets, strict=True)
        return next((rule.format for rule, targets in pairs if targets and targets.covers(module)), None)

    def _ruled(
        self, tensor: Tensor, prefix: str, module: str, indices: tuple[int, ...], ignored: frozenset[int]
    ) -> list[tuple[Format, frozenset[int]]]:
        left, found = frozenset(indices) - ignored, list[tuple[Format, frozenset[int]]]()
        for rule, targets in zip(self.plan.rules if self.plan else (), self._targets, strict=True):
            if not left or (rule.roles and not tensor.role.startswith(rule.roles)):
                continue
            hit = targets.layers(prefix, module, indices) & left if targets else left
            found.append((rule.format or self.base, hit))
            left -= hit
        return [*found, (self.base, left)]


def _named_modules(plan: Plan) -> "tuple[Patterns | None, tuple[Patterns, ...]]":
    """The modules that a plan leaves alone, None for none, and those that each of its rules names."""
    from vramcast.models.quantization.patterns import Patterns

    return Patterns(plan.ignore) if plan.ignore else None, tuple(Patterns(rule.targets) for rule in plan.rules)


def _numbered(name: str) -> tuple[str, int]:
    from vramcast.models.quantization.patterns import numbered

    return numbered(name)


def _read_exactly(model: Model, base: Format) -> "Exact":
    from vramcast.models.quantization.exact import Exact

    return Exact(model.stored, base)


def stored_bytes(form: Format, tensor: Tensor, elements: int | None = None) -> int:
    """Bytes of ``elements`` of a tensor in that format; shares of a rank carry their share of the scales."""
    whole = form.bytes_of(tensor.shape) * tensor.copies
    if elements is None or elements == tensor.elements:
        return whole
    return -(-whole * elements // tensor.elements) if tensor.elements else 0


def walk(model: Model, *, stored: bool = True) -> list[tuple[Tensor, Block | None, Tower | None]]:
    """Every distinct tensor of a model with its block and tower; ``stored`` includes what is only in the checkpoint."""
    own = [(t, None, None) for t in model.tensors]
    decoder = [(t, b, None) for b in model.blocks for t in b.tensors]
    towers = [t for t in model.towers if stored or not t.stored_only]
    outer = [(t, None, w) for w in towers for t in w.tensors]
    inner = [(t, b, w) for w in towers for b in w.blocks for t in b.tensors]
    return [*own, *decoder, *outer, *inner]


def _reason(tensor: Tensor, tower: Tower | None, *, named: bool) -> tuple[str, str]:
    if named:
        return tower.name if tower else tensor.role, "the checkpoint's config leaves these modules alone"
    if tower is not None:
        return tower.name, "towers beside the decoder are not quantised unless the config says so"
    if tensor.dtype is not None:
        return tensor.role, f"always {tensor.dtype}"
    return tensor.role, _WHY.get(tensor.role.rpartition(".")[2], "vectors")


_AVERAGE = re.compile(r"(exl2|exl3|bpw)[-_]?([0-9]{1,2}(?:\.[0-9]{1,4})?)(?:bpw)?|([0-9]{1,2}(?:\.[0-9]{1,4})?)[-_]?bpw")


def scheme_for(model: Model, *, dtype: str | None = None, quant: str | None = None) -> Scheme:
    """The storage of ``model``: its checkpoint's own scheme unless ``quant`` names another (``none`` for plain ``dtype``).

    Raises QuestionError for an unknown name and UnmodelledError for a checkpoint whose method has no storage rule.
    """
    base = _dtype(dtype or "auto", model)
    asked = (quant or "auto").strip().lower()
    config = model.quantization
    if asked == "auto" or (config and _same_method(asked, config)):
        return _own_scheme(model, base, given=dtype is not None)
    if config and asked != "none" and _same_format(asked, own := _own_scheme(model, base, given=dtype is not None)):
        return own
    from vramcast.models.quantization.formats import ALIASES
    from vramcast.models.quantization.habits import with_habits

    if asked == "none" or (dtype_name(asked) in PLAIN and asked.replace("_", "-") not in ALIASES):
        return Scheme(model, dtype=base if asked == "none" else dtype_name(asked))
    return Scheme(model, dtype=base, plan=with_habits(_named_plan(asked), model))


def scheme_names() -> tuple[str, ...]:
    """Every name that ``quant`` takes, without aliases; averages (``exl2-4.5``, ``4.5bpw``) come on top."""
    from vramcast.models.quantization.formats import GGML_TYPES, NAMED

    return (*NAMED, *GGML_TYPES)


def _own_scheme(model: Model, dtype: str, *, given: bool) -> Scheme:
    """The checkpoint's scheme. What a quantised one keeps is in 16 bits, also where its config leaves the type out (float32)."""
    if model.quantization is None:
        return Scheme(model, dtype=dtype, exact=True)
    from vramcast.models.quantization.habits import with_habits
    from vramcast.models.quantization.methods import plan_of

    plan = plan_of(Config(model.quantization, "quantization_config"))
    plan = with_habits(plan, model) if plan.name.startswith(("modelopt", "awq", "nf4", "fp4", "llm.int8")) else plan
    return Scheme(model, dtype="bfloat16" if dtype == "float32" and not given else dtype, plan=plan, exact=True)


def _same_method(asked: str, config: Mapping[str, Any]) -> bool:
    """Whether the name only repeats what the checkpoint is: engines have kernels' names for it (gptq_marlin, modelopt_fp4)."""
    from vramcast.models.quantization.methods import method_of

    own = method_of(Config(config, "quantization_config"))
    return asked.replace("_", "-").startswith(own.replace("_", "-")) or own.startswith(asked)


def _same_format(asked: str, own: Scheme) -> bool:
    """Whether the checkpoint is already stored so: ``fp8`` asked of one with fp8 blocks, ``w4a16`` of one with int4 groups."""
    from vramcast.models.quantization.formats import ALIASES, NAMED

    name = ALIASES.get(asked.replace("_", "-"), asked)
    kind = NAMED[name].name.partition("-")[0] if name in NAMED and name not in PLAIN else None
    rules = own.plan.rules if own.plan else ()
    return kind is not None and any(rule.format and rule.format.name.partition("-")[0] == kind for rule in rules)


def _named_plan(asked: str) -> Plan:
    from vramcast.models.quantization.formats import GGML_TYPES

    form = _format(asked)
    roles = ("expert.",) if asked == "mxfp4" else ()
    return Plan(
        name=form.name,
        rules=(Rule(format=form, roles=roles),),
        towers=asked.startswith(("nf4", "fp4", "llm", "bnb", "bitsandbytes")),
        everywhere=asked.removeprefix("gguf-") in GGML_TYPES.keys() - {"mxfp4", "nvfp4"},
    )


_GGUF_MIX = re.compile(r"i?q\d_[a-z0-9_]+", re.IGNORECASE)


def spoken_scheme(asked: str) -> str:
    """The row's name of a scheme that is written in one of its other ways; as it stands where it has no row."""
    from vramcast.models.quantization.formats import ALIASES

    word = asked.lower().replace("_", "-")
    return ALIASES.get(word, word)


def _format(asked: str) -> Format:
    from vramcast.models.quantization.formats import ALIASES, GGML_TYPES, NAMED, ggml_type, per_weight

    name = ALIASES.get(asked.replace("_", "-"), asked)
    if name in NAMED:
        return NAMED[name]
    if name.startswith("gguf-") or name in GGML_TYPES:
        return ggml_type(name.removeprefix("gguf-")).format
    average = _AVERAGE.fullmatch(name)
    if average is None and _GGUF_MIX.fullmatch(asked):
        raise QuestionError(
            f"{asked.upper()} is a type of GGUF files: --engine llama.cpp or ollama runs it; others take awq, gptq, fp8 ..."
        )
    if average is None:
        raise unknown_name("quantisation scheme", asked, (*NAMED, *ALIASES, *GGML_TYPES))
    bits = float(average[2] or average[3])
    if not 0.5 <= bits <= 32:
        raise ConfigError(f"quantisation scheme {asked!r} means {bits:g} bits per weight: expected 0.5 to 32")
    return per_weight(asked, bits, "average bits per weight, as asked")


def _dtype(text: str, model: Model) -> str:
    name = dtype_name(model.dtype if text == "auto" else text)
    if name not in PLAIN:
        raise unknown_name("dtype", text if text != "auto" else model.dtype, (*SPOKEN, *PLAIN))
    return name
