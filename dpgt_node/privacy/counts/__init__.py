"""Noise that is a count of fair coins beside the code of a gradient: how it is drawn, and what it costs."""
