"""Differentially private gradient tracking over directed graphs, as real gRPC daemons."""

__version__ = "0.1.0"
