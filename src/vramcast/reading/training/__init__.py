"""Training files people hold, read into a question: what each key decides, which keys cost no memory, which have no rule."""
