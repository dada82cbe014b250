"""An answer's sentences in the reader's language: what follows the verdict's word, and what a term is called."""

from vramcast.language import Language
from vramcast.ledger import Fit
from vramcast.units import gib


def headline_in(fit: Fit, say: Language) -> str:
    """How likely, and by how much; in English the words of ``planning.verdict.headline`` (a test holds both together)."""
    if fit.refused or fit.verdict == "partly":
        return say.formula(fit.error)
    likely = likely_in(fit.probability, say) if fit.probability is not None else ""
    if fit.margin_bytes is None:
        return likely
    short = fit.margin_bytes < 0
    margin = say("short" if short else "to-spare", size=gib(abs(fit.margin_bytes)))
    if (fit.verdict == "tight" and short) or (fit.verdict == "no" and not short):
        margin = say("t-stayed" if short else "t-went", margin=margin)
    return say("t-headline", likely=likely, margin=margin) if likely else margin


def likely_in(chance: float, say: Language) -> str:
    """How likely it fits, in the words of ``planning.verdict.likely_text``."""
    from vramcast.planning.verdict import percent

    if chance > 0.99:
        return say("likely-surely")
    return say("likely-hardly") if chance < 0.01 else say("likely", share=f"{percent(chance)}%")


def term_in(name: str, say: Language) -> str:
    """A term in a terminal: the contract's own name, which ``--explain`` takes, behind its Chinese word where there is one."""
    word = say.word("term", name)
    return name if word.isascii() else f"{word} {name}"
