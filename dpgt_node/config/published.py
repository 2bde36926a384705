"""The JSON Schemas of RUN.toml and NODE.toml, and the copies of them that ship in this package."""

from __future__ import annotations

from typing import Any

from dpgt_node.config.declare import schema
from dpgt_node.config.model import NodeConfig, RunConfig


def run_schema() -> dict[str, Any]:
    """Of RUN.toml, with the keys of every method that is registered."""
    return schema.of_file(RunConfig, "RUN.toml of dpgt")


def node_schema() -> dict[str, Any]:
    """Of NODE.toml."""
    return schema.of_file(NodeConfig, "NODE.toml of dpgt")
