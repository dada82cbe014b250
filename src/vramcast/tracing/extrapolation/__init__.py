"""A deep, large or long step from the logs of a few small ones."""
