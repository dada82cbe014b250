"""Adapters and prompts: what they train, as shapes."""
