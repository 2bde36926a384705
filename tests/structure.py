"""What the import contracts cannot see, read from the syntax tree: names inside modules, laziness, builtins.

``findings(module, source)`` lists every breach in one module's source; ``hidden_tests(source)`` in one test's;
``circles`` and ``crowded`` look at all modules together.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import networkx as nx

PACKAGE = "dpgt_node"
PURE = ("algo", "privacy", "accounts", "protocol")

# Below these names nothing is pure.
IMPURE_MODULES = (
    *("asyncio", "concurrent", "multiprocessing", "queue", "signal", "subprocess", "threading"),
    *("grpc", "http", "select", "selectors", "socket", "ssl", "urllib"),
    *("datetime", "time", "random", "secrets", "uuid", "numpy.random", "scipy.stats"),
    *("fcntl", "glob", "io", "logging", "mmap", "os", "pathlib", "shutil", "sqlite3", "sys", "tempfile"),
    "importlib",
)
IMPURE_BUILTINS = ("__import__", "breakpoint", "compile", "eval", "exec", "input", "open", "print")

# Who may import a library (and everything below it).
ONLY_IN = {
    "click": ("cli",),
    "rich": ("cli",),
    "torch": ("learning", "adversary", "bench"),
    "torchvision": ("learning",),
    "dask": ("experiments",),
    "distributed": ("experiments",),
    "numba": ("privacy",),
    "uvloop": ("cli",),
    "jinja2": ("report",),
    "matplotlib": ("report",),
    "tensorboard": ("record",),
    "grpc": ("wire", "runtime", "bench"),
    "grpc_health": ("wire", "runtime"),
    "grpc_tools": ("wire",),
    "google": ("wire",),
    "dpgt_node.wire.gen": ("wire",),
    "sqlite3": ("runtime",),
    "h11": ("runtime",),
    "prometheus_client": ("runtime",),
}
# A node must start without these: only inside functions, even where they are allowed.
LAZY = ("dask", "distributed", "torch", "torchvision", "tensorboard", "jinja2", "grpc_tools", "numba")
LAZY += ("prometheus_client", "uvloop")

OPERATOR_INPUT = ("os.environ", "os.environb", "os.getenv", "os.getenvb", "os.putenv", "os.unsetenv", "sys.argv")
READS_OPERATOR_INPUT = ("cli", "__main__")

# A file takes its name in one way, which says what survives; a model's folder is published as one.
RENAMES = ("os.rename", "os.renames", "os.replace", "shutil.move", "tempfile.NamedTemporaryFile", "tempfile.mkstemp")
MAY_RENAME = ("durable", "cli.results.export")

# An adversary may know a law and its density, never draw from it.
DRAWING = ("sampler", "sampler_for", "perturb", "perturb_rows", "selftest")

# Bytes that become code: nothing that a peer sent or left in a file may reach these.
RUNS_BYTES = (
    "eval",
    "exec",
    "compile",
    "__import__",
    "breakpoint",
    "builtins",
    "runpy",
    "pkgutil.resolve_name",
)
DESERIALISERS = (
    "pickle",
    "_pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "marshal",
    "shelve",
    "yaml",
    "jsonpickle",
)
# The python batches of CIFAR-10, an operator's own download, are pickles: read by an allow-list of names.  The
# constructor of a dataclass is compiled from the names of its fields, which are in the source.
ALLOW_LISTED = {
    "learning.data.pictures.sets": ("pickle", "pickle.Unpickler", "pickle.UnpicklingError"),
    "values": ("exec",),
}
# By a name that is not in the source: verbs, and the plug-ins of an operator's own file.
IMPORTS_BY_NAME = {"importlib.import_module": ("cli", "learning.plugins")}
# Calls that unpickle unless told not to, and the argument that tells them.
UNPICKLE_UNLESS = {
    "numpy.load": ("allow_pickle", False),
    "numpy.save": ("allow_pickle", False),
    "numpy.lib.format.read_array": ("allow_pickle", False),
    "torch.load": ("weights_only", True),
    "pandas.read_pickle": ("", None),
}

SEEDED_GENERATORS = ("default_rng", "Generator", "SeedSequence", "RandomState")
ESCAPES = ("skip", "skipif", "xfail", "importorskip", "exit")


def findings(module: str, source: str) -> list[str]:
    """Every breach in ``source``, the text of ``module`` (``"dpgt_node.algo.graph"``), as readable lines."""
    uses = Uses(module, source)
    package = module.removeprefix(PACKAGE + ".").split(".")[0]
    inside = module.removeprefix(PACKAGE + ".")
    return [
        f"{module}:{line}: {what}"
        for line, what in sorted({*_rules(package, uses), *_renames(inside, uses), *_no_code(inside, uses)})
    ]


def hidden_tests(source: str) -> list[str]:
    """Ways in which a test file could turn green without testing, as readable lines."""
    uses = Uses("tests", source)
    names = {f"pytest.{a}" for a in ESCAPES} | {f"pytest.mark.{a}" for a in ESCAPES}
    names |= {"unittest.skip", "unittest.skipIf", "unittest.skipUnless", "unittest.SkipTest"}
    return [f"line {u.line}: {u.name} hides a test" for u in uses.names if u.name in names]


def circles(sources: Mapping[str, str]) -> list[list[str]]:
    """Modules that import each other, each circle sorted; ``sources``: text by module.

    An import inside a function counts, one for the type checker does not.
    """
    graph = nx.DiGraph()
    for module, source in sources.items():
        for use in Uses(module, source).imports:
            name = use.name
            while name and name not in sources:
                name = name.rpartition(".")[0]
            if name and name != module and not use.typing:
                graph.add_edge(module, name)
    return sorted(sorted(found) for found in nx.strongly_connected_components(graph) if len(found) > 1)


def crowded(modules: Iterable[str], most: int) -> dict[str, int]:
    """Packages with more than ``most`` modules of their own, packages within them not counted; how many they have."""
    counts = Counter(name.rpartition(".")[0] for name in modules)
    return {package: n for package, n in counts.items() if n > most}


@dataclass(frozen=True, slots=True)
class _Use:
    line: int
    name: str
    lazy: bool = False
    main_block: bool = False
    typing: bool = False


class Uses(ast.NodeVisitor):
    """Imports and dotted names of one module, with local aliases resolved."""

    def __init__(self, module: str, source: str) -> None:
        self.imports: list[_Use] = []
        self.names: list[_Use] = []
        self.calls: list[tuple[_Use, ast.Call]] = []
        self.attributes: list[_Use] = []
        self._module = module
        self._aliases: dict[str, str] = {}
        self._lazy = self._main = self._typing = False
        tree = ast.parse(source)
        for node in ast.walk(tree):  # first all bindings, so that a use before its import in the text resolves too
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._bind(node)
        self.visit(tree)

    def _bind(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                self._aliases[alias.asname or alias.name] = f"{self._source(node)}.{alias.name}"
            elif alias.asname:
                self._aliases[alias.asname] = alias.name
            else:
                top = alias.name.split(".")[0]
                self._aliases[top] = top

    def _source(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        base = self._module.split(".")[: -node.level]
        return ".".join([*base, *([node.module] if node.module else [])])

    def _add(self, to: list[_Use], node: ast.AST, name: str) -> None:
        to.append(_Use(getattr(node, "lineno", 0), name, self._lazy, self._main, self._typing))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(self.imports, node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            name = f"{self._source(node)}.{alias.name}"
            self._add(self.imports, node, name)
            self._add(self.names, node, name)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._add(self.attributes, node, node.attr)
        name = self._dotted(node)
        if name is not None:
            self._add(self.names, node, name)
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = self._dotted(node.func)
        if name is not None:
            self.calls.append((_Use(node.lineno, name, self._lazy, self._main, self._typing), node))
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._add(self.names, node, self._aliases.get(node.id, node.id))

    def _dotted(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return self._aliases.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            head = self._dotted(node.value)
            return None if head is None else f"{head}.{node.attr}"
        return None

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before, self._lazy = self._lazy, True
        self.generic_visit(node)
        self._lazy = before

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_If(self, node: ast.If) -> None:
        test = ast.unparse(node.test)
        lazy, main, typing = self._lazy, self._main, self._typing
        self._typing = typing or test.endswith("TYPE_CHECKING")
        self._lazy = lazy or self._typing
        self._main = main or test == "__name__ == '__main__'"
        for child in node.body:
            self.visit(child)
        self._lazy, self._main, self._typing = lazy, main, typing
        for child in (node.test, *node.orelse):
            self.visit(child)


def _below(name: str, tops: Iterable[str]) -> str | None:
    return next((top for top in tops if name == top or name.startswith(top + ".")), None)


def _rules(package: str, uses: Uses) -> Iterator[tuple[int, str]]:
    for use in uses.imports:
        only = _below(use.name, ONLY_IN)
        if only and package not in ONLY_IN[only]:
            yield use.line, f"{only} is imported outside {' and '.join(ONLY_IN[only])}"
        lazy = _below(use.name, LAZY)
        if lazy and not use.lazy:
            yield use.line, f"{lazy} is imported when the module loads, not inside a function"
        impure = _below(use.name, IMPURE_MODULES)
        if package in PURE and impure:
            yield use.line, f"{package} is pure, yet imports {impure}"
    for use in (*uses.attributes, *uses.names):
        for drawing in set(use.name.split(".")).intersection(DRAWING if package == "adversary" else ()):
            yield use.line, f"an adversary draws no noise, yet uses {drawing}"
    for use in uses.names:
        impure = _below(use.name, IMPURE_MODULES)
        if package in PURE and impure and "." in impure:
            yield use.line, f"{package} is pure, yet uses {impure}"
        if package in PURE and use.name in IMPURE_BUILTINS:
            yield use.line, f"{package} is pure, yet uses {use.name}()"
        operator = _below(use.name, OPERATOR_INPUT)
        if operator and package not in READS_OPERATOR_INPUT and not use.main_block:
            yield use.line, f"{operator} is read outside cli"
        if use.name.startswith("numpy.random.") and use.name.split(".")[2] not in SEEDED_GENERATORS:
            yield use.line, f"{use.name} uses numpy's global generator"


def _renames(module: str, uses: Uses) -> Iterator[tuple[int, str]]:
    for use in uses.names:
        if use.name in RENAMES and module not in MAY_RENAME:
            yield use.line, f"{use.name} is used outside {' and '.join(MAY_RENAME)}"


def _no_code(module: str, uses: Uses) -> Iterator[tuple[int, str]]:
    """Data stays data: no pickle, no eval, nothing imported by a name that somebody else chose."""
    allowed = ALLOW_LISTED.get(module, ())
    for use in (*uses.imports, *uses.names):
        if use.name in allowed:
            continue
        if name := _below(use.name, RUNS_BYTES):
            yield use.line, f"{name} runs what it is given"
        if name := _below(use.name, DESERIALISERS):
            yield use.line, f"{use.name}: {name} can run what it reads"
    for use, call in uses.calls:
        by_name = IMPORTS_BY_NAME.get(use.name)
        if by_name and not _below(module, by_name) and not isinstance(call.args[0], ast.Constant):
            yield use.line, f"{use.name} of a computed name outside {' and '.join(by_name)}"
        if use.name in UNPICKLE_UNLESS:
            keyword, value = UNPICKLE_UNLESS[use.name]
            given = next((argument.value for argument in call.keywords if argument.arg == keyword), None)
            if not (isinstance(given, ast.Constant) and given.value is value):
                yield use.line, f"{use.name} without {keyword}={value}"
