"""Serving engines by name, each imported only when it is asked for."""

from vramcast.serving.engines.base import canonical_name, engine, engine_names

__all__ = ["canonical_name", "engine", "engine_names"]
