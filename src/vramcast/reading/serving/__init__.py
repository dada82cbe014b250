"""What people hold about serving, one file a format; each yields ``Launch`` values: an engine, its model and its flags as words.

``asking`` makes the question of a launch. Nothing is run, nothing is fetched; files that an artefact names are read beside it.
"""

from vramcast.reading.serving.files import ServingFile, find_launches, is_serving_file, read_serving_file, read_serving_text
from vramcast.reading.serving.launch import Launch
from vramcast.reading.serving.scripts import read_script

__all__ = ["Launch", "ServingFile", "find_launches", "is_serving_file", "read_script", "read_serving_file", "read_serving_text"]
