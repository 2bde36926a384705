"""A node as frozen values, and every key of NODE.toml with them: ``declare.keys`` says how."""

from pathlib import Path
from typing import Annotated, Literal

from dpgt_node.config.declare.keys import AtMostOne, Key, When
from dpgt_node.config.declare.kinds import Integer, Number, Text
from dpgt_node.config.own_kinds import Address, AgentName, FilePath, Identity, Several
from dpgt_node.config.vocabulary import ACCOUNTANTS, MAX_AGENTS, MECHANISMS
from dpgt_node.values import dataclass

_SECURE = When("insecure", ("false",), text="unless insecure")


def _pem(sentence: str) -> Key:
    return Key(sentence, FilePath(), only=_SECURE, required=True)


@dataclass(frozen=True, slots=True)
class NodeTls:
    """``insecure`` True: no TLS at all; else the three PEM files and the pinned coordinator identity."""

    insecure: Annotated[bool, Key("true: no TLS at all, and none of the other keys", default=False, later=True)]
    ca: Annotated[
        Path | None,
        Key(
            "PEM file; crl.pem beside it, if there is one, is the revocation list",
            FilePath(),
            only=_SECURE,
            required=True,
        ),
    ] = None
    cert: Annotated[Path | None, _pem("PEM file")] = None
    key: Annotated[Path | None, _pem("PEM file, for its owner alone (0600)")] = None
    coordinator_id: Annotated[
        str, Key("the identity that the coordinator's certificate must show", Identity(), only=_SECURE)
    ] = "dpgt:coordinator"


@dataclass(frozen=True, slots=True)
class Policy:
    """The data owner's limits over all runs of a data set; None is no limit (warned about).

    ``accountant``: whose epsilon is capped; None: the smallest of the sound ones.  ``noise_min``: the smallest scale
    of any charged release.
    """

    epsilon_max: Annotated[
        float | None,
        Key("cap on the epsilon of all runs on this data set together, this one included", Number(above=0.0)),
    ] = None
    delta_max: Annotated[
        float | None,
        Key(
            "the delta of all of them together, at which composed runs are counted",
            Number(above=0.0, below=1.0),
            absent="a delta need only be below 1/D",
        ),
    ] = None
    accountant: Annotated[
        str | None,
        Key(
            "whose epsilon is capped",
            ACCOUNTANTS,
            absent="the smallest of the sound ones, which lemma5 is not",
        ),
    ] = None
    # An owner may already name mechanisms that this version does not build: the list only restricts.
    mechanisms: Annotated[
        tuple[str, ...] | None,
        Key("allowed ones", Several(MECHANISMS.built + MECHANISMS.planned, "mechanisms"), absent="all"),
    ] = None
    noise_min: Annotated[float | None, Key("smallest scale allowed of any charged release", Number(above=0.0))] = None
    allow_study: Annotated[
        bool,
        Key(
            'true: a run with metrics = "study" is allowed; it gives the coordinator x_final and training metrics, '
            "which no epsilon covers",
            later=True,
        ),
    ] = False
    allow_declared: Annotated[
        bool,
        Key(
            "true: a C that the run file declares is believed; without it such a run counts as unbounded, because "
            "whoever writes the run file would choose epsilon",
            later=True,
        ),
    ] = False
    epsilon_max_colluding: Annotated[
        float | None,
        Key(
            "the same cap on what any `colluding` of the other agents learn together; needs that key",
            Number(above=0.0),
        ),
    ] = None
    colluding: Annotated[
        int | None,
        Key(
            "how many of the other agents are believed to work together at most; needs epsilon_max_colluding",
            Integer(0, MAX_AGENTS),
        ),
    ] = None

    @property
    def limits(self) -> bool:
        """Whether it limits anything: there is a policy."""
        return self != Policy(allow_study=self.allow_study, allow_declared=self.allow_declared)


DATA_ID = "default"
"""Data-set id of a node that names none."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A whole NODE.toml.  Addresses are ``HOST:PORT``; relative paths were resolved against the file's folder.

    ``shard`` counts from 1, as in agent-1: the i-th part of the partition.  Without ``shard`` and ``data_path`` the
    agent takes the part of its own row.  ``data_id`` names the data set a privacy budget belongs to: what runs cost
    adds up over all runs of one id in one state directory.  ``disk_check``: refuse to start where the free space is
    less than the run is predicted to need.
    """

    name: Annotated[str, Key("must be an agent of the run", AgentName())]
    run: Annotated[Path, Key("this host's own copy of the run file", FilePath())]
    listen: Annotated[str, Key("where others connect to; port 0: any free port", Address(listening=True))]
    advertise: Annotated[
        str | None,
        Key(
            "what others dial; needed when listen is a wildcard (0.0.0.0, ::), and never a wildcard itself",
            Address(),
            default=None,
            absent="the bound address",
        ),
    ]
    coordinator: Annotated[str, Key("where the coordinator listens", Address())]
    state_dir: Annotated[Path, Key("database, large payloads, x_final.npy", FilePath())]
    tls: Annotated[NodeTls, Key("files are read again when they change")]
    shard: Annotated[
        int | None,
        Key(
            "which part of the partition, from 1 to n as in agent-1",
            Integer(1),
            "data.shard",
            absent="the agent's own row",
            about="which samples are the agent's",
        ),
        AtMostOne(("data.shard", "data.path")),
    ] = None
    data_path: Annotated[
        Path | None,
        Key(
            "the agent's own data: .npz, .csv, .parquet, or a folder of pictures; not for toys", FilePath(), "data.path"
        ),
    ] = None
    data_test: Annotated[
        Path | None,
        Key(
            "a second table with the same columns, this agent's test set; needs path, and no own_test_fraction then",
            FilePath(),
            "data.test",
        ),
    ] = None
    durability: Annotated[
        Literal["process", "power"],
        Key("what a release survives before it leaves: a killed process, or a power cut"),
    ] = "process"
    policy: Annotated[Policy, Key("the data owner's limits. Without one there is no cap")] = Policy()
    data_id: Annotated[
        str,
        Key(
            "the data set that budgets belong to: costs add up over all runs of one id in this state directory",
            Text(128),
            "data.id",
            later=True,
        ),
    ] = DATA_ID
    ledger_key: Annotated[
        Path | None,
        Key(
            "file of at least 32 bytes, for its owner alone (0600) and outside state_dir: signs the ledger's head, so "
            "that who can write to state_dir alone cannot forge it",
            FilePath(),
            absent="the ledger is not signed",
            later=True,
        ),
    ] = None
    disk_check: Annotated[
        bool,
        Key(
            "refuse to start where less space is free than the run is predicted to need (`dpgt check` prints it)",
            later=True,
        ),
    ] = True
