"""Profiler traces: what the GPU did, what it waited for, and how its kernels compare with what the card can do."""
