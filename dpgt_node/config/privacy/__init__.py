"""What a run file says of its releases: which rounds release, at what scale, and whose noise is shared."""
