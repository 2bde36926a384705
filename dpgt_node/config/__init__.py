"""RUN.toml and NODE.toml as frozen values; every problem of a file is reported at once."""
