"""Shell scripts as the commands they would run: variables, arrays, branches and here-documents resolved, nothing executed.

A ``Script`` is the commands in order, each with its environment; what a script leaves open (``$1``, a variable that nobody
set, a branch that such a variable decides) stays as ``${NAME}`` in the words, so that a reader can ask for it.
"""

from vramcast.reading.shell.script import Line, Script, ShellStart, open_names, read_script_text

__all__ = ["Line", "Script", "ShellStart", "open_names", "read_script_text"]
