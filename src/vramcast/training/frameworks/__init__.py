"""What each framework keeps and does, by version: a table of names, one small module per framework."""

from vramcast.training.frameworks.common import Resolver, framework_name, names, resolver

__all__ = ["Resolver", "framework_name", "names", "resolver"]
