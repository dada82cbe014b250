"""The words that made-up texts consist of, and how finely made-up tokenizers cut them."""

# Tokens of an English word: a hundred tokens are about 75 words (OpenAI, "What are tokens and how to count them?").
TOKENS_A_WORD = 4 / 3
# Made-up tokenizers cut a word into pieces of so many letters; the words below, like those of English texts, come to that figure.
LONGEST_PIECE = 5
_TEXT = (
    "the model reads a page of text and then it writes what came before in other words so that people who ask can follow"
    " each new step without having seen any number twice while moments pass slowly and nobody exactly remembers which"
    " answer arrived latest"
)
WORDS = tuple(_TEXT.split())
