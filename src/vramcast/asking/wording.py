"""An answer's sentences in the reader's language: what follows the verdict's word, and what a term is called."""

from vramcast.language import Language
from vramcast.ledger import Fit
from vramcast.units import gib


def headline_in(fit: Fit, say: Language) -> str:
    """How likely, and by how much; in English the words of ``planning.verdict.headline`` (a test holds both together)."""
    if fit.refused or fit.verdict == "partly":
        return fit.error
    likely = _likely(fit.probability, say) if fit.probability is not None else ""
    if fit.margin_bytes is None:
        return likely
    short = fit.margin_bytes < 0
    margin = say("short" if short else "to-spare", size=gib(abs(fit.margin_bytes)))
    if (fit.verdict == "tight" and short) or (fit.verdict == "no" and not short):
        margin = say("t-stayed" if short else "t-went", margin=margin)
    return say("t-headline", likely=likely, margin=margin) if likely else margin


def _likely(chance: float, say: Language) -> str:
    if chance > 0.99:
        return say("likely-surely")
    return say("likely-hardly") if chance < 0.01 else say("t-likely", share=f"{100 * chance:.0f}")


def term_in(name: str, say: Language) -> str:
    """A term in a terminal: the contract's own name, which ``--explain`` takes, behind its Chinese word where there is one."""
    word = say.word("term", name)
    return name if word.isascii() else f"{word} {name}"
