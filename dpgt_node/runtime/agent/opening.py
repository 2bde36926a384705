"""What an agent's state directory and its owner say about a run: read at the start, held against the policy, begun."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dpgt_node.agent.policy import study_problem
from dpgt_node.agent.work import AgentWork
from dpgt_node.algo.graph import Topology
from dpgt_node.config import NodeConfig, RunConfig, run_sha256
from dpgt_node.errors import ConfigError, RefusedError, StoreError
from dpgt_node.protocol.agent import session_types as s
from dpgt_node.protocol.types import Recovered
from dpgt_node.record.released import recorded, window_start
from dpgt_node.runtime.agent.budget import Request, check_unrecorded, terms_of
from dpgt_node.runtime.agent.driver import NOT_RECORDED
from dpgt_node.runtime.disk import agent_need, require_room, still_needed, used_bytes
from dpgt_node.runtime.store.faults import blamed
from dpgt_node.runtime.store.ledger import TEST, Charge
from dpgt_node.runtime.store.store import Store
from dpgt_node.runtime.store.terms import of_these_data

if TYPE_CHECKING:
    from dpgt_node.record.recording import Recording
    from dpgt_node.runtime.agent.agreeing import Agreement

log = logging.getLogger(__name__)


class Opening:
    """Run ``run`` at the agent of ``config``, row ``index`` of ``topology``.  ``recording`` is set by ``begin``.

    ``shard_sha256``: of the agent's data, empty without any.  ``keystream``: where its noise comes from.
    ``agreement``: on the keys of the noise that it shares.  ``sha256``: of the run file, hex.
    """

    def __init__(
        self,
        config: NodeConfig,
        run: RunConfig,
        topology: Topology,
        index: int,
        work: AgentWork,
        store: Store,
        *,
        shard_sha256: bytes,
        keystream: str,
        agreement: Agreement | None = None,
    ) -> None:
        self._config = config
        self._run = run
        self._topology = topology
        self._index = index
        self._work = work
        self._store = store
        self._shard_sha256 = shard_sha256
        self._keystream = keystream
        self._agreement = agreement
        self.sha256 = run_sha256(run)
        self._charges: tuple[Charge, ...] = ()
        self._costs: Callable[[int], str] | None = None
        self.recording: Recording | None = None

    def require_room(self, batch: int | None, sample_size: int) -> None:
        """ConfigError when the disk has no room for what is still needed: one that fills up stops everybody."""
        config, run, store = self._config, self._run, self._store
        need = agent_need(run, config.name, self._work.dimension, batch, sample_size, self._work.table_size)
        run_id = store.find_run(self.sha256, config.name)
        released = next((known.last_durable_round for known in store.runs() if known.run_id == run_id), -1)
        require_room(
            config.state_dir,
            still_needed(need, run.K, released, used_bytes(config.state_dir / "blobs")),
            source=config.name,
            key="state_dir",
            hint="free some, give another state_dir, or set disk_check = false in NODE.toml to try all the same",
        )

    def held(self) -> s.Held:
        """What the directory holds of this run now.  StoreError: it cannot be read."""
        store, K = self._store, self._run.K
        self._charges = store.charges()
        run_id = store.find_run(self.sha256, self._config.name)
        if run_id is None:
            return s.Held()
        if store.is_finished(run_id):
            return s.Held(run_id, K, K, K, finished=True)
        recovered = store.recover(run_id)
        if recovered is None:
            return s.Held(run_id)
        k = recovered.checkpoint.k
        return s.Held(run_id, k + len(recovered.records) - 1, k - 1, k - 1)

    def read(self, effect: s.ReadRun) -> s.RunRead | s.RunRefused:
        """The run as it is stored."""
        store, run_id = self._store, effect.run_id
        try:
            head = store.head_after(run_id, effect.ledger_round) if effect.ledger_round >= 0 else b""
            final = store.final(run_id) if store.is_finished(run_id) else None
            return s.RunRead(head, store.recover(run_id), final)
        except StoreError as error:
            return s.RunRefused(error)

    def begin(self, effect: s.BeginRun, samples: int | None) -> s.RunBegun | s.RunRefused:
        """Ask the owner's policy, and remember the run."""
        config, run, run_id = self._config, self._run, effect.run_id
        budget_through, shortfall = None, ""
        try:
            if not effect.finished:  # whoever has the result releases nothing new
                if self._keystream == TEST:
                    self._warn_of_test_noise()
                check_unrecorded(self._charges, run_id, self._work.account)
                same = {known.run_id for known in of_these_data(self._store.runs(), self._shard_sha256)}
                request = Request(
                    config.policy, config.data_id, run, self._work.account, samples, self._charges, run_id, same
                )
                verdict = request.obey()
                budget_through, shortfall = verdict.budget_through, verdict.shortfall or ""
                through = run.K if budget_through is None else budget_through
                if config.policy.limits and through >= 0:
                    self._costs = request.costs
                    log.info("the run begins: %s", self._costs(through))
            elif problems := study_problem(config.policy, run):  # the result would go to the coordinator again
                raise RefusedError(f"the policy of the data's owner forbids this run: {'; '.join(problems)}")
            self._store.begin_run(
                run_id,
                self.sha256,
                config.name,
                terms_of(config.data_id, run, config.name, samples, self._keystream),
                shard_sha256=self._shard_sha256,
                average_from=window_start(run.K),
            )
            shares = None if self._agreement is None or effect.finished else self._agreement.begin(run_id)
            if not effect.finished and recorded(run, config.name):
                self.recording = self._record(run_id, effect.recovered)
        except (StoreError, RefusedError, ConfigError) as error:
            return s.RunRefused(error)
        return s.RunBegun(budget_through, shortfall, recorded=self.recording is not None, agreement=shares)

    def ended(self, run_id: bytes) -> None:
        """Say in the owner's log what run ``run_id`` has cost by now, where there is a policy."""
        if self._costs is None:
            return
        with contextlib.suppress(StoreError):  # what broke the store is said already
            k = next((known.last_durable_round for known in self._store.runs() if known.run_id == run_id), -1)
            log.info("the run ended here: %s", self._costs(k) if k >= 0 else "nothing was released")

    def _warn_of_test_noise(self) -> None:
        """RefusedError under a policy."""
        what = "its noise comes from a test keystream: whoever knows that takes it off again, and no epsilon is finite"
        if self._config.policy.limits:
            raise RefusedError(f"the policy of the data's owner forbids this run: {what}")
        log.warning("%s", what)

    def _record(self, run_id: bytes, recovered: Recovered | None) -> Recording:
        from dpgt_node.record.recording import Recording

        state_dir = self._config.state_dir
        recording = Recording(
            state_dir,
            self._run,
            self._topology,
            self._index,
            run_id,
            self._work,
            source=f"{self._config.name}, dpgt node",
            sync=self._config.durability == "power",
            now_ns=time.time_ns,
        )
        with blamed(state_dir, NOT_RECORDED):
            recording.begin(recovered)
        log.info("recording in %s", state_dir)
        return recording
