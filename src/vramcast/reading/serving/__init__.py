"""What people hold about serving: a pasted line, a script, a compose file, an engine's YAML, a Modelfile; each is a ``Launch``.

A ``Launch`` is the engine, its model and its flags as words; ``asking.serving`` makes the question of them. Nothing is run.
"""

from vramcast.reading.serving.files import read_serving_file
from vramcast.reading.serving.launch import Launch, launch_of, read_script

__all__ = ["Launch", "launch_of", "read_script", "read_serving_file"]
