"""Texts that tutorials fetch by an address: as many characters, of as many kinds, saying nothing.

A model of characters has a token for each kind, and one of tokens has batches whatever the text says. Counts of words and of
tokens are not the file's own.
"""

import itertools
import string
from typing import NamedTuple

from vramcast.tracing.published.words import WORDS


class Corpus(NamedTuple):
    """A text file: where its address ends, its characters, how many kinds of them; the longest where a line is one word."""

    address: str
    characters: int
    kinds: int
    longest_word: int = 0

    def text(self) -> str:
        """The made-up text of this length."""
        between = "\n" if self.longest_word else " "
        body = ["a" * self.longest_word + "\n"] if self.longest_word else []
        length = self.longest_word
        for number, word in enumerate(itertools.cycle(WORDS), 1):
            body.append(word + ("\n" if number % len(WORDS) == 0 else between))
            length += len(body[-1])
            if length >= self.characters:
                break
        made = "".join(body)
        wanted = (letter for letter in string.ascii_letters + string.digits + string.punctuation if letter not in set(made))
        missing = "".join(itertools.islice(wanted, self.kinds - len(set(made))))
        return made[: self.characters - len(missing)] + missing


# Counted in the files of karpathy/char-rnn, karpathy/makemore and rasbt/LLMs-from-scratch.
_KNOWN = (
    Corpus("char-rnn/master/data/tinyshakespeare/input.txt", 1_115_394, 65),
    Corpus("makemore/master/names.txt", 228_145, 27, longest_word=15),
    Corpus("/the-verdict.txt", 20_479, 62),
)


def corpus(address: str) -> Corpus | None:
    """The text at an address; None for any other file, whatever its ending."""
    return next((known for known in _KNOWN if address.partition("?")[0].endswith(known.address)), None)
