"""Keys that only some data sets, partitions and graph generators have, declared as ``keys`` says.

A class holds the keys of one data set, partition or generator.  They end up in ``Data.params`` or in a matrix: nothing
else in the package makes one of these.
"""

from typing import Annotated, Literal

from dpgt_node.config.columns import ByColumn, ColumnBounds, ColumnNames, ColumnWords
from dpgt_node.config.declare.keys import AtMostOne, Key, Variants
from dpgt_node.config.declare.kinds import Integer, Integers, Number
from dpgt_node.config.graphs.edges import Edge, EdgeList
from dpgt_node.config.own_kinds import AgentPair, ClassNames, SelfLoops
from dpgt_node.config.vocabulary import GENERATORS, MAX_AGENTS, MAX_DIMENSION, MAX_ENTRIES
from dpgt_node.values import dataclass

# --- data sets ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Separable:
    """Of "quadratic" and "zeros"."""

    dimension: Annotated[int, Key("d, the number of unknowns", Integer(1, MAX_DIMENSION))]


@dataclass(frozen=True, slots=True)
class Sine:
    """Of "pl-sine", which has one unknown."""

    start: Annotated[float, Key("every coordinate of every x_0")] = 2.0


@dataclass(frozen=True, slots=True)
class Linear:
    """Of "pl-linear"; rows x dimension <= 10^8."""

    dimension: Annotated[int, Key("d, the number of unknowns", Integer(1, 10_000))] = 5
    rows: Annotated[
        int | None,
        Key(
            "rows of A, at least dimension; rows x dimension at most 10^8",
            Integer(1, MAX_ENTRIES),
            absent="2 dimension",
        ),
    ] = None
    start: Annotated[float, Key("every coordinate of every x_0")] = 0.0


_CLASSES = "how many classes, or their names in the order of the labels; needed where a node has data of its own"
_SEEN = "those that the labels show"


@dataclass(frozen=True, slots=True)
class Table:
    """Of "csv:PATH" and "parquet:PATH"."""

    label: Annotated[str, Key("the column that holds the labels: 0, 1, 2, ..., other integers or words")]
    test: Annotated[
        str | None,
        Key("path of a second file, the test set; relative to the run file"),
        AtMostOne(("test", "test_fraction"), "test_fraction"),
    ] = None
    test_fraction: Annotated[float, Key("part of the rows that is the test set", Number(at_least=0.0, below=1.0))] = 0.2
    own_test_fraction: Annotated[
        float | None,
        Key(
            "part of the rows of every host's own table that is that host's test set",
            Number(at_least=0.0, below=1.0),
            absent="none",
        ),
    ] = None
    classes: Annotated[int | tuple[str, ...] | None, Key(_CLASSES, ClassNames(), absent=_SEEN)] = None
    columns: Annotated[
        tuple[str, ...] | None,
        Key(
            "the columns that are features, in this order; others are left out",
            ColumnNames(),
            absent="all but the label, in the file's order",
        ),
    ] = None
    bounds: Annotated[
        ByColumn | None,
        Key(
            "public bounds of columns, each brought from low..high to -1..1; a value outside counts as the nearest end",
            ColumnBounds(),
            absent="used as they are",
        ),
    ] = None
    bounds_from: Annotated[
        Literal["table"] | None,
        Key(
            "the bounds are the ranges of the rows themselves, as `dpgt init --bounds table` reads them: no epsilon "
            "covers what they tell",
            absent="public knowledge",
        ),
    ] = None
    categories: Annotated[
        ByColumn | None,
        Key(
            "columns of words: every word listed becomes a number, 1 or 0; another word is none of them",
            ColumnWords(),
            absent="all are numbers",
        ),
    ] = None
    missing: Annotated[
        Literal["middle"] | None,
        Key(
            "an empty cell counts as the middle of the column's bounds (0 without bounds), and as no category",
            absent="empty cells are refused",
        ),
    ] = None


_KEPT = "part of the samples that is the test set, where the data have none of their own"
_OWN_KEPT = "the same of every host's own data, whose test set it is"
_PART = Number(at_least=0.0, below=1.0)


@dataclass(frozen=True, slots=True)
class Arrays:
    """Of "npz:PATH"."""

    classes: Annotated[int | tuple[str, ...] | None, Key(_CLASSES, ClassNames(), absent=_SEEN)] = None
    layout: Annotated[
        Literal["channels-first", "channels-last"] | None,
        Key(
            "where the channels of pictures are: (N, channels, height, width) or (N, height, width, channels)",
            absent="first, and refused where they look last",
        ),
    ] = None
    test_fraction: Annotated[float | None, Key(_KEPT, _PART, absent="none")] = None
    own_test_fraction: Annotated[float | None, Key(_OWN_KEPT, _PART, absent="none")] = None


@dataclass(frozen=True, slots=True)
class Folder:
    """Of "folder:PATH"."""

    classes: Annotated[int | tuple[str, ...] | None, Key(_CLASSES, ClassNames(), absent="the folders' names")] = None
    test_fraction: Annotated[float | None, Key(_KEPT, _PART, absent="none")] = None
    own_test_fraction: Annotated[float | None, Key(_OWN_KEPT, _PART, absent="none")] = None


DATASET_KEYS = Variants(
    "dataset",
    "data set",
    {
        "quadratic": Separable,
        "zeros": Separable,
        "pl-sine": Sine,
        "pl-linear": Linear,
        "csv:": Table,
        "parquet:": Table,
        "npz:": Arrays,
        "folder:": Folder,
    },
)


# --- partitions, by flwr-datasets' names ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shards:
    """Of "shards"."""

    num_shards_per_partition: Annotated[int, Key("shards that each agent is dealt", Integer(1))] = 2


@dataclass(frozen=True, slots=True)
class Dirichlet:
    """Of "dirichlet"."""

    alpha: Annotated[
        float, Key("of Dirichlet(alpha, ..., alpha): the smaller, the less alike agents are", Number(above=0.0))
    ]
    min_partition_size: Annotated[
        int, Key("samples that every agent must get; drawn at most ten times until it has them", Integer(1))
    ] = 10
    self_balancing: Annotated[bool, Key("an agent that has its fair share gets nothing of further classes")] = True


@dataclass(frozen=True, slots=True)
class ByLabel:
    """Of "by-label"."""

    num_classes_per_partition: Annotated[int, Key("classes that each agent holds", Integer(1))] = 2
    class_assignment_mode: Annotated[
        Literal["deterministic", "random"], Key("agent i holds the next classes in turn, or random ones")
    ] = "deterministic"


@dataclass(frozen=True, slots=True)
class InnerDirichlet:
    """Of "inner-dirichlet"."""

    alpha: Annotated[
        float, Key("of the Dirichlet(alpha, ..., alpha) from which each agent's mixture comes", Number(above=0.0))
    ]
    partition_size: Annotated[int | None, Key("samples of every agent", Integer(1), absent="equal parts of all")] = None


PARTITION_KEYS = Variants(
    "partition",
    "partition",
    {"shards": Shards, "dirichlet": Dirichlet, "inner-dirichlet": InnerDirichlet, "by-label": ByLabel},
)

# --- graph generators ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Generator:
    """A matrix by rule, e.g. ``{ generator = "ring", weight = 0.5 }``; further keys in GENERATOR_KEYS."""

    generator: Annotated[str, Key("which edges there are", GENERATORS)]
    weight: Annotated[float, Key("of every edge", Number(above=0.0))] = 1.0
    self_loops: Annotated[bool | float, Key("true: of the same weight; or their weight", SelfLoops())] = False
    reverse: Annotated[bool, Key("turns every edge round")] = False
    undirected: Annotated[bool, Key("adds the reversed edges")] = False


@dataclass(frozen=True, slots=True)
class Chord:
    """Of "ring-chord"."""

    chord: Annotated[tuple[int, int], Key("[sender, receiver], agent numbers from 1", AgentPair())] = (1, 3)


@dataclass(frozen=True, slots=True)
class Star:
    """Of "star"."""

    center: Annotated[int, Key("agent number from 1", Integer(1, MAX_AGENTS))] = 1


@dataclass(frozen=True, slots=True)
class Random:
    """Of "random"."""

    p: Annotated[float, Key("probability of each edge", Number(at_least=0.0, at_most=1.0))]
    seed: Annotated[int, Key("of the draw")] = 0


@dataclass(frozen=True, slots=True)
class Circulant:
    """Of "circulant"."""

    offsets: Annotated[
        tuple[int, ...], Key("agent i sends to i + each of them, modulo their number", Integers(1, MAX_AGENTS - 1))
    ]


@dataclass(frozen=True, slots=True)
class Listed:
    """Of "edges"."""

    edges: Annotated[
        tuple[Edge, ...],
        Key("each edge once, agent numbers from 1; an edge without a weight has the rule's", EdgeList()),
    ]


GENERATOR_KEYS = Variants(
    "generator",
    "generator",
    {"ring-chord": Chord, "star": Star, "random": Random, "circulant": Circulant, "edges": Listed},
)
