"""What people read of the declarations: the reference page, and the JSON Schemas of RUN.toml and NODE.toml.

All three are files of the repository, written by ``python -m dpgt_node.cli.schema`` and checked by ``make lint``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpgt_node.config.declare import page, schema
from dpgt_node.config.declare.tables import Table, table_of, tables_of
from dpgt_node.config.model import RunConfig
from dpgt_node.config.node_model import NodeConfig
from dpgt_node.config.parameters import GENERATOR_KEYS, Generator

SCHEMAS = {"run": "run.schema.json", "node": "node.schema.json"}
PAGE = Path("docs") / "reference" / "configuration.md"

_HEAD = """\
<!-- Written by python -m dpgt_node.cli.schema from the declarations in dpgt_node/config: do not edit. -->
# Run files and node files

TOML, UTF-8, at most 64 MB. Unknown keys are errors. Every problem of a file is listed at once, each as
`FILE: key: what is wrong`, and the command exits 2. Numbers must be finite. Where a number is asked for, an integer
will do; the reverse is an error. Complete run files: [`examples/`](../../examples).

Editors complete keys and check values as you type. For Even Better TOML, Tombi and others that know JSON Schema, save
the schema beside the file and name it in the first line:

```sh
dpgt schema run > run.schema.json
dpgt schema node > node.schema.json
```

```toml
#:schema ./run.schema.json
name = "first"
```

## RUN.toml

The rules behind the words are in [data](data.md) (folder, partitions, features),
[models](models.md) (torch, clips, evaluations, exports) and [recordings](recordings.md)."""
_BETWEEN = """\
### What agents compare

Coordinator and agents compare the SHA-256 of the resolved run as JSON with sorted keys. Comments, order, spelling of
numbers, shorthands and the folder do not count. Every value does, also those of `[runtime]`. Weights from a file or a
generator count as weights. The text of a path (`npz:PATH`) counts as written. A run file with `[adversary]` has another
hash than without: owners of data see it in their own copy.

## NODE.toml

Relative paths are resolved against the folder of the node file. Addresses are `HOST:PORT` or `[IPV6]:PORT`;
a link-local one needs its interface, `[fe80::1%eth0]:PORT`, and no other may have one."""
_GRAPHS = """\
one of a list of rows, the name of a file, or a rule such as `R = { generator = "ring", weight = 0.5 }`.
A file, relative to the run file, is `.csv` (one row a line, commas; lines with # are skipped), `.npy` (one
2-dimensional array) or `.graphml` (nodes are agent names, an edge goes from sender to receiver, attribute `weight`,
default 1). A rule has these keys"""


def run_schema() -> dict[str, Any]:
    """The JSON Schema of RUN.toml, with the keys of every method that is registered."""
    return schema.of_file(RunConfig, "RUN.toml of dpgt")


def node_schema() -> dict[str, Any]:
    return schema.of_file(NodeConfig, "NODE.toml of dpgt")


def reference_page() -> str:
    """``docs/reference/configuration.md``."""
    return "\n\n".join([_HEAD, *page.sections(_run_tables()), _BETWEEN, *page.sections(tables_of(NodeConfig))]) + "\n"


def files() -> Mapping[Path, str]:
    """Everything that is generated, by its path in the repository."""
    package = Path("dpgt_node") / "config"
    schemas = {package / SCHEMAS["run"]: run_schema(), package / SCHEMAS["node"]: node_schema()}
    return {PAGE: reference_page(), **{path: json.dumps(s, indent=1) + "\n" for path, s in schemas.items()}}


def _run_tables() -> list[Table]:
    generators = table_of("R and C", _GRAPHS, (Generator,), GENERATOR_KEYS)
    found = []
    for table in tables_of(RunConfig):
        found += [table, generators] if table.name == "graph" else [table]
    return found
