"""The page and its API: the same questions and answers as the command line, over HTTP, for people who would rather look."""
