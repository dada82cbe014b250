"""Time: kernel laws, a step as a ledger of seconds, the schedulers that chain steps, training's overlap and pipelines."""
