"""What was assumed: what decides first, each with the flag that changes it, the rest folded; and what no rule covers."""

from typing import Any

from vramcast.cli.pages.page import Page
from vramcast.language import spoken
from vramcast.ledger import Assumption, Forecast
from vramcast.units import gib

_MOST = 12
# Where the name of a resolved setting is not the word that is typed for it.
_TYPED = {
    "weights": "--param-dtype", "compute": "--compute-dtype", "gradients": "--grad-dtype", "sharding": "--zero or --fsdp",
    "micro_batch": "--micro-batch", "model": "MODEL", "engine_version": "--engine NAME==VERSION",
    "framework_version": "--framework NAME==VERSION", "unused_cards": "--tp or --dp",
}  # fmt: skip
_NO_FLAG = frozenset({"no effect on memory", "traced_error", "layers traced", "unused_cards"})


def assumptions(page: Page, forecast: Forecast) -> None:
    """The dozen that decide, a count of the rest, and what is not modelled."""
    assumed = _last_of_each([a for a in forecast.assumed if a.value not in ("emulated", "refused")])
    say = spoken()
    if assumed:
        page.heading(say("t-assumed"))
        shown = assumed[:_MOST] if len(assumed) > _MOST + 1 else assumed
        for a in shown:
            flag = flag_of(a, forecast)
            page.line("  ", f"{a.name} = {value_words(a)}", (f"  {say.formula(a.because)}", "faint"),
                      (f"  ({flag})" if flag else "", "faint"), hang=4)  # fmt: skip
        if len(shown) < len(assumed):
            key = "t-more-set" if "micro_batch" in forecast.workload else "t-more"
            page.line("  ", (say(key, count=len(assumed) - len(shown)), "faint"))
    for u in forecast.unmodelled:
        bound = f" ({say('t-at-most', size=gib(u.bound_bytes))})" if u.bound_bytes is not None else ""
        page.line((f"{say('t-unmodelled')}: ", "warn"), f"{say.formula(u.what)}{bound}", hang=2)


def _last_of_each(assumed: list[Assumption]) -> list[Assumption]:
    """One line for each setting: what a card or a kernel makes of a default comes after the default, and is what runs."""
    several = ("no effect on memory",)
    last = {a.name: a for a in assumed if a.name not in several}
    kept = dict.fromkeys(a.name for a in assumed)
    return [one for name in kept for one in ([last[name]] if name in last else [a for a in assumed if a.name == name])]


def value_words(assumption: Assumption) -> str:
    """The value as people write it: a scheme by its method and bits, bytes in GiB."""
    value: Any = assumption.value
    if isinstance(value, dict):
        method, bits, group = (value.get(key) for key in ("quant_method", "bits", "group_size"))
        words = [
            str(method or "as its files say"),
            *([f"{bits} bits"] if bits else []),
            *([f"groups of {group}"] if group else []),
        ]
        return ", ".join(words)
    if value is None and assumption.name == "quantization":
        return "none"
    return gib(value) if assumption.name.endswith("_bytes") and isinstance(value, int) and value >= 2**20 else str(value)


def flag_of(assumption: Assumption, forecast: Forecast) -> str:
    """What to type to have it otherwise; "" for what no flag decides."""
    from vramcast.asking.serving import ServingWords
    from vramcast.asking.training import TrainingWords

    name, training = assumption.name, "micro_batch" in forecast.workload
    if name in _NO_FLAG:
        return ""
    if name in _TYPED:
        return _TYPED[name]
    words = TrainingWords.__annotations__ if training else ServingWords.__annotations__
    plain = name.removeprefix("adapter.")
    if plain in words or (not training and name in forecast.workload.get("options", {})):
        return f"--{plain.replace('_', '-')}"
    recipe = forecast.workload.get("recipe", {})
    return f"--set {name}=..." if isinstance(recipe, dict) and name in recipe else ""
