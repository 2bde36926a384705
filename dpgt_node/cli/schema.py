"""``dpgt schema``: what editors complete run files and node files from.

``python -m dpgt_node.cli.schema [--check]`` writes, or checks, the files that are generated from the declarations of
keys: the reference page and the schemas that ship.  From a source checkout.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import click

from dpgt_node.errors import ExitCode

ROOT = Path(__file__).resolve().parents[2]


@click.command()
@click.argument("file", type=click.Choice(["run", "node"]))
def schema(file: str) -> ExitCode:
    """Print the JSON Schema of RUN.toml or NODE.toml; editors complete from it.

    Save it beside the file, and write "#:schema ./run.schema.json" into the file's first line.
    """
    from dpgt_node.config.published import SCHEMAS

    text = resources.files("dpgt_node.config").joinpath(SCHEMAS[file]).read_text(encoding="utf-8")
    click.echo(text, nl=False)
    return ExitCode.DONE


def generated() -> Mapping[Path, str]:
    """The text of every generated file, by its path in the repository."""
    from dpgt_node.algo.methods import METHODS
    from dpgt_node.config import published

    tuple(METHODS.values())  # methods declare their keys when they load
    return published.files()


def stale(root: Path = ROOT) -> list[str]:
    """Generated files below ``root`` that differ from what the declarations give now; empty when up to date."""
    return [
        str(path)
        for path, text in generated().items()
        if not (root / path).is_file() or (root / path).read_text(encoding="utf-8") != text
    ]


def main(arguments: list[str]) -> int:
    """Exit code 0: written, or ``--check`` found nothing stale; 1: stale; 2: wrong usage."""
    if arguments == ["--check"]:
        differing = stale()
        for name in differing:
            print(f"{name}: not what the declarations give; run python -m dpgt_node.cli.schema")
        return 1 if differing else 0
    if arguments:
        print("usage: python -m dpgt_node.cli.schema [--check]")
        return 2
    for path, text in generated().items():
        (ROOT / path).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
