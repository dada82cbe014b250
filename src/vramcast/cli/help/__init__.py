"""What helps to type a command: help under headings, completion, lists of words, the glossary."""
