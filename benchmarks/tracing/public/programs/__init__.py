"""The training and inference programs behind published figures, as their authors' users write them; each has one ``main``."""
