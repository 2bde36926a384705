"""What an agent says of itself to the coordinator, and what it believes of what the coordinator says of the run."""

from __future__ import annotations

from dpgt_node.errors import ConfigError, DpgtError, ExitCode, NoAgreement, RefusedError, StaleState
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.agent.session_types import Held, Terms
from dpgt_node.protocol.told import told


def register(
    terms: Terms, name: str, held: Held, agent: AgentMachine | None, run_id: bytes, advertise: str
) -> m.Register:
    """What the agent holds now: of the run's machine, or of the state directory before there is one."""
    rounds = (
        (held.released, held.done, held.durable)
        if agent is None
        else (agent.released_through, agent.done_through, agent.durable_through)
    )
    return m.Register(
        name,
        terms.run_sha256,
        terms.run_json,
        advertise,
        terms.samples,
        terms.dimension,
        terms.shape_sha256,
        *rounds,
        finished=agent is not None and agent.done_through == terms.last_round,
        run_id=run_id,
        instance=terms.instance,
        package_version=terms.package_version,
    )


def believe(terms: Terms, welcome: m.Welcome) -> None:
    """RefusedError for another version, ConfigError for another run: the owner of the data decides, and nothing is
    released under a run this host has no copy of.
    """
    if welcome.protocol_version != m.PROTOCOL_VERSION or welcome.package_version != terms.package_version:
        raise RefusedError(f"the coordinator runs dpgt-node {welcome.package_version}, this is {terms.package_version}")
    if welcome.run_json != terms.run_json:
        raise ConfigError.one(terms.run_source, "", "the coordinator's run differs from this copy")


def old_copy(terms: Terms, name: str, welcome: m.Welcome) -> StaleState:
    """The ledger here never was what the coordinator remembers of it."""
    return StaleState(
        f"{terms.state_source}: an old state directory or another one: the coordinator remembers a ledger of {name} "
        f"through round {welcome.ledger_round} that this one never was; nothing was drawn again. Put the newest state "
        "directory back, or start a new run"
    )


def refused(name: str, answer: m.Refused) -> RefusedError:
    """The coordinator turned this agent away."""
    error = RefusedError(f"the coordinator refused {name}: {answer.reason}")
    error.exit_code = ExitCode.CONFIG if answer.kind == "run-hash" else ExitCode.REFUSED
    return error


def refusal(error: DpgtError) -> m.Refusal:
    """What the coordinator hears of it: a kind.  With whom no key could be agreed on is no secret: both are named."""
    if isinstance(error, NoAgreement):
        return m.Refusal("identity", f"{told(error)}: {error.peer}")
    return m.Refusal("policy" if isinstance(error, RefusedError) else "data", told(error))


def code_of(stop: int, *, saved: bool) -> ExitCode:
    """How to exit after Stop: no coordinator can make an unfinished run look done, nor this process buggy."""
    code = next((code for code in ExitCode if code == stop), ExitCode.STOPPED)
    mistaken = code is ExitCode.BUG or (code is ExitCode.DONE and not saved)
    return ExitCode.STOPPED if mistaken else code
