"""From what was asked to every decision that a step's memory depends on."""
