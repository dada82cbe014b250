"""Readers of trace files: Chrome traces of PyTorch and rocprof as streams, Nsight Systems' SQLite, rocprofv3's JSON."""
