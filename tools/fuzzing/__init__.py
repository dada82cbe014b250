"""Structure-aware fuzzing of everything that vramcast reads. ``tools/fuzz.py`` runs it for long, ``tests/fuzz`` for seconds."""
