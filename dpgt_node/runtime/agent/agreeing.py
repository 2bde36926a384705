"""What an agent that shares noise does about keys: makes its own, checks the others', keeps what was agreed on.

When which of it happens is the session's (``protocol.agent.agreeing``), what it means is mathematics
(``runtime.trust.agreement``), and where it is kept is the table's (``runtime.trust.pair_table``).
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping

from cryptography.hazmat.primitives import serialization

from dpgt_node.config import NodeConfig, RunConfig, run_sha256
from dpgt_node.errors import ConfigError, NoAgreement, StoreError, invariant
from dpgt_node.privacy.cancelling.masks import MaskGraph
from dpgt_node.protocol.agent import session_types as s
from dpgt_node.protocol.messages import KeyOffer
from dpgt_node.runtime.store.faults import blamed
from dpgt_node.runtime.store.store import Store
from dpgt_node.runtime.trust import agreement
from dpgt_node.runtime.trust.agreement import Pair, Subject
from dpgt_node.runtime.trust.channels import Security


class Agreement:
    """The keys of agent ``config.name`` with its partners in ``graph``."""

    def __init__(self, config: NodeConfig, run: RunConfig, graph: MaskGraph, security: Security, store: Store) -> None:
        self._config, self._security, self._store = config, security, store
        self._name, self._names = config.name, run.graph.agents
        self._sha256, self._graph = run_sha256(run), graph
        self._subject: Subject
        self._begun: s.Agreement
        self._private: bytes | None = None
        self._agreed: Mapping[str, Pair] = {}

    @property
    def partners(self) -> tuple[str, ...]:
        """Who shares noise with this agent, in row order."""
        return tuple(self._names[j] for j in self._graph.partners(self._names.index(self._name)))

    def begin(self, run_id: bytes) -> s.Agreement:
        """What there is of it in run ``run_id``, or a new key and the offer of it.  StoreError, ConfigError."""
        self._subject = Subject(run_id, self._sha256, self._names, self._graph.edges)
        with blamed(self._config.state_dir, "the keys of this run cannot be read or written"):
            held = self._store.pairs.open(run_id)
            if held is None:
                self._private = os.urandom(agreement.KEY_BYTES)
                self._begun = s.Agreement(self._offer(self._private))
                self._store.pairs.begin(self._private, self._begun.offer)
            else:
                self._private = held.private
                self._begun = s.Agreement(held.offer, held.proofs, agreed=held.private is None)
        return self._begun

    def _offer(self, private: bytes) -> KeyOffer:
        invariant(self._security.credentials is not None, "keys are offered with a certificate")
        assert self._security.credentials is not None
        material = self._security.credentials.material()
        try:
            signing = serialization.load_pem_private_key(material.key_pem, password=None)
            return agreement.offer(self._subject, self._name, private, material.certificate, signing)
        except ValueError as error:
            raise ConfigError.one(str(self._config.tls.key), "", f"cannot sign a key offer: {error}") from error

    def check(self, effect: s.CheckRing) -> s.RingChecked | s.RunRefused:
        """Hold every offer against the certificates of this run, pin it, and derive what follows."""
        invariant(self._private is not None, "a ring is checked before the keys are kept")
        assert self._private is not None and self._security.credentials is not None
        material, now = self._security.credentials.material(), datetime.datetime.now(datetime.UTC)
        try:
            ring, own = effect.offers, self._begun.offer
            agreement.check_ring(self._subject, own, ring, material.authorities, material.revoked, now)
            self._agreed = agreement.agree(self._subject, self._name, self._private, ring)
            ours = {peer: pair.ours for peer, pair in self._agreed.items()}
            with blamed(self._config.state_dir, "the keys of this run cannot be written"):
                self._store.pairs.pin(ring, ours)
        except (NoAgreement, StoreError) as error:
            return s.RunRefused(error)
        return s.RingChecked(ours, {peer: pair.theirs for peer, pair in self._agreed.items()})

    def keep(self) -> s.KeysKept | s.RunRefused:
        """Every partner has proved the same key: K_ij,0 is durable, and the X25519 key is erased."""
        try:
            with blamed(self._config.state_dir, "the keys of this run cannot be written"):
                self._store.pairs.keep({self._names.index(peer): pair.key for peer, pair in self._agreed.items()})
        except StoreError as error:
            return s.RunRefused(error)
        self._private, self._agreed = None, {}
        return s.KeysKept()
