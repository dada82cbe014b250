"""LMDeploy with its TurboMind engine."""

from vramcast.serving.engines.lmdeploy.engine import Lmdeploy

ENGINE = Lmdeploy()
