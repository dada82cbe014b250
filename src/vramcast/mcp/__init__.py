"""A server of the Model Context Protocol: an assistant asks for memory, fit, speed and plans instead of guessing them."""
