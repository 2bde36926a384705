"""What a run left in its folder, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from dpgt_node.api.table import Table
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from dpgt_node.config import RunConfig
    from dpgt_node.record.metrics import MetricsRow
    from dpgt_node.record.summary import Summary
    from dpgt_node.types import F64, I64


@dataclass(frozen=True)
class Results:
    """The results of the run in ``out``; arrays are by agent, in the order of the run file, float64.

    ``run``: the resolved run file.  ``summary``: summary.json; None while the run is unfinished.  ``rows``: of
    metrics.csv.
    """

    out: Path
    run: RunConfig
    summary: Summary | None
    rows: Sequence[MetricsRow]

    def __repr__(self) -> str:
        return f"Results({str(self.out)!r}: {self.run.name}, {self.status}, {len(self.agents)} agents)"

    @property
    def agents(self) -> tuple[str, ...]:
        """Names; agent i is row i - 1 of R and C."""
        return self.run.graph.agents

    @property
    def status(self) -> str:
        """As in summary.json: "finished", "stopped", "budget", "lost", "refused", "failed"; else "unfinished"."""
        return "unfinished" if self.summary is None else self.summary.status

    @cached_property
    def accuracy_test(self) -> F64:
        """Of x_{i,K+1}, in [0, 1], shape (n,); nan where it is not known, as in local runs."""
        return _array(None if agent is None else agent.accuracy_test for agent in self._by_agent())

    @cached_property
    def loss_train(self) -> F64:
        """Of x_{i,K+1}, nats, shape (n,); nan where it is not known."""
        return _array(None if agent is None else agent.loss_train for agent in self._by_agent())

    @cached_property
    def epsilon(self) -> dict[str, F64]:
        """What the run has cost every agent, shape (n,), by accountant; inf: nothing is promised; nan: not known."""
        from dpgt_node.privacy.accountants.registry import ACCOUNTANTS

        known = self._by_agent()
        return {name: _array(None if a is None else a.epsilon.get(name) for a in known) for name in ACCOUNTANTS}

    @cached_property
    def x(self) -> F64 | None:
        """x_{i,K+1} of all agents, shape (n, d); None where this folder does not hold them all, as in local runs."""
        import numpy as np

        paths = [self.out / "agents" / name / "x_final.npy" for name in self.agents]
        if not all(path.is_file() for path in paths):
            return None
        return np.stack([np.load(path, allow_pickle=False) for path in paths])

    @cached_property
    def metrics(self) -> Table:
        """metrics.csv: a column an array, a row an agent and evaluated round."""
        import numpy as np

        from dpgt_node.record.metrics import COLUMNS

        table = Table(agent=np.array([row.agent for row in self.rows], dtype=np.str_))
        table["k"] = np.array([row.k for row in self.rows], dtype=np.int64)
        for name in COLUMNS[2:]:
            table[name] = _array(row.value(name) for row in self.rows)
        return table

    @cached_property
    def table(self) -> Table:
        """One row an agent: accuracy, loss, epsilon under every accountant that has one."""
        import numpy as np

        table = Table(agent=np.array(self.agents, dtype=np.str_))
        table["accuracy_test"], table["loss_train"] = self.accuracy_test, self.loss_train
        for name, values in self.epsilon.items():
            if not np.isnan(values).all():
                table[f"epsilon_{name}"] = values
        return table

    def curve(self, column: str) -> tuple[I64, F64]:
        """A column of metrics.csv by round: k of shape (E,), values of shape (E, n); nan where there is none.

        Raises KeyError for a column that metrics.csv does not have.
        """
        import numpy as np

        metrics, place = self.metrics, {name: i for i, name in enumerate(self.agents)}
        if column not in metrics or column in ("agent", "k"):
            raise KeyError(f"{column}: not one of {', '.join(name for name in metrics if name not in ('agent', 'k'))}")
        k, at = np.unique(metrics["k"], return_inverse=True)
        values = np.full((k.size, len(place)), np.nan)
        values[at, [place[name] for name in metrics["agent"].tolist()]] = metrics[column]
        return k, values

    def _by_agent(self) -> list[AgentSummaryOrNone]:
        known = {} if self.summary is None else {agent.name: agent for agent in self.summary.agents}
        return [known.get(name) for name in self.agents]


if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpgt_node.record.summary import AgentSummary

    AgentSummaryOrNone = AgentSummary | None


def _array(values: Iterable[float | None]) -> F64:
    import numpy as np

    return np.array(list(values), dtype=np.float64)


def load_results(out: str | PathLike[str]) -> Results:
    """What the run in folder ``out`` left so far, also while it goes on.

    Raises ConfigError: no run there, or a file that cannot be read.
    """
    from dpgt_node.config import load_run
    from dpgt_node.record.metrics import MetricsStore
    from dpgt_node.record.summary import load_summary

    folder = Path(out)
    return Results(folder, load_run(folder / "run.toml"), load_summary(folder), MetricsStore.read(folder))
