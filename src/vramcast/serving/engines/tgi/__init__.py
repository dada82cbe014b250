"""text-generation-inference."""

from vramcast.serving.engines.tgi.engine import Tgi

ENGINE = Tgi()
