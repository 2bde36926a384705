"""What every search of a plan works with: the run, the shape of the data, and accounts as agents will keep them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

from dpgt_node import figures
from dpgt_node.accounts.account import AgentAccount
from dpgt_node.accounts.planner import Route, Target
from dpgt_node.agent.noise import accounts_for, check_range
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import RunConfig
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.datasets import Dataset
from dpgt_node.sim.plans.alike import Alike
from dpgt_node.sim.plans.rehearsal import Rehearsal, Shape


class Frame:
    """``run``, ``shape``; ``public``, ``alike``: see :class:`Rehearsal`.  ``progress`` gets a line now and then."""

    def __init__(
        self,
        run: RunConfig,
        shape: Shape,
        public: Dataset | None,
        alike: Alike | None,
        progress: Callable[[str], None],
    ) -> None:
        self.run, self.shape, self.progress = run, shape, progress
        self.topology = Topology.from_config(run.graph)
        self._public, self._alike = public, alike

    @cached_property
    def rehearsal(self) -> Rehearsal:
        """The stand-in for the agents' data."""
        return Rehearsal(self.run, self.shape, self._public, alike=self._alike)

    def accounts(self, run: RunConfig) -> Sequence[AgentAccount]:
        """The accounts of a run, as its agents will keep them."""
        schedule = Schedule.from_config(run)
        return accounts_for(run, self.topology, schedule, self.shape.samples, self.rehearsal.dimension)

    def check_range(self, run: RunConfig, way: Route, target: Target) -> None:
        """ConfigError where noise is too little for the sampler's range, with the nearest possible epsilon."""
        problem, nearest = self._range_problem(run), run
        if problem is None:
            return
        while self._range_problem(nearest) is not None:
            nearest = replace(nearest, noise=replace(nearest.noise, multiplier=2.0 * nearest.noise.multiplier))
        known = [account.total(way.accountant) for account in self.accounts(nearest)]
        possible = min(value for value in known if value is not None)
        raise ConfigError.one(
            target.source,
            "--epsilon",
            f"{target.epsilon:g} needs so little noise that the sampler cannot cover a clipped gradient "
            f"({problem}); {figures.epsilon(possible)} is possible, or no noise at all (noise.multiplier = 0)",
        )

    def _range_problem(self, run: RunConfig) -> str | None:
        schedule = Schedule.from_config(run)
        try:
            for i in range(run.n):
                check_range(run, self.topology, schedule, i)
        except ConfigError as error:
            return error.problems[0].message
        return None
