"""PyTorch's CUDA caching allocator, modelled exactly, and event logs replayed through it."""
