"""Optimizers: one row each, their states, and what a step of theirs allocates."""
