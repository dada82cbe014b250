"""What ``tools/build_answers.py`` stands on: asking, the text of an answer, and which lines were reached."""
