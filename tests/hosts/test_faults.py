"""Five agents and a coordinator on six hosts, by name, over mTLS; whatever happens to hosts and links, the bits of
``simulate``.

Marked ``long`` beside ``hosts``: not in the share that continuous integration runs.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import command, eventually
from tests.hosts.conftest import Deploy
from tests.hosts.deployment import AGENTS
from tests.hosts.lab import Lab

pytestmark = pytest.mark.hosts

K = 400  # several seconds of rounds: a fault at round 20 is in mid-run
Simulated = Callable[[int], Path]


def agents(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {agent["name"]: agent for agent in status["agents"]}


@pytest.mark.long  # what the share runs implies it, but for the addresses
def test_one_host_an_agent_by_name_with_the_bits_of_simulate(deploy: Deploy, hosts: Lab, simulated: Simulated) -> None:
    run = deploy(50)
    run.start_all()
    run.finished()
    run.same_bits_as(simulated(50))
    summary = json.loads((run.results / "summary.json").read_text())
    assert summary["status"] == "finished" and [a["name"] for a in summary["agents"]] == list(AGENTS)
    for agent in AGENTS:  # each was registered from its own address, under its own name
        said = run.daemons["coordinator"].said
        assert f"{agent} registered from ipv4:{hosts[agent].address}:" in said
        assert f"listens on {hosts[agent].fqdn}:7701" in said
    # agent-1 sends x to 2 and 3 and y to 2: 650 float64 values each, every round.
    assert hosts["agent-1"].bytes_out() > 3 * 51 * 650 * 8


def test_an_agents_host_and_then_the_coordinators_lose_power(deploy: Deploy, hosts: Lab, simulated: Simulated) -> None:
    run = deploy(K)
    run.start_all()
    run.reaches(20)
    hosts["agent-2"].reboot()
    run.start("agent-2")
    run.reaches(60)
    hosts["coordinator"].reboot()
    run.start("coordinator")
    run.finished()
    run.same_bits_as(simulated(K))


@pytest.mark.needs("cut")
def test_a_link_is_cut_for_a_while(deploy: Deploy, hosts: Lab, simulated: Simulated) -> None:
    run = deploy(K)
    run.start_all()
    run.reaches(20)
    hosts.cut("agent-3", "agent-4")
    eventually("frames are dropped", lambda: hosts.dropped() > 10)
    status = run.status()
    assert status["k"] < K and all(agent["connected"] for agent in status["agents"])
    # It misses agent-3's x and y.  Status names whom a round waits for once nobody has made a step for a while.
    eventually("status names agent-4", lambda: "agent-4" in run.status()["reason"])
    hosts.heal()
    run.finished()
    run.same_bits_as(simulated(K))


@pytest.mark.long
@pytest.mark.needs("cut")
def test_a_link_that_is_cut_one_way_is_named(deploy: Deploy, hosts: Lab, simulated: Simulated) -> None:
    run = deploy(K, round_timeout=8)
    run.start_all()
    run.reaches(20)
    hosts.cut("agent-3", "agent-4", one_way=True)
    # Both ends are connected to the coordinator, and the way back is open: only the two together show what is wrong.
    eventually("the coordinator names the edge", lambda: "agent-3 cannot reach agent-4" in run.status()["reason"])
    status = run.status()
    assert agents(status)["agent-3"]["connected"] and agents(status)["agent-4"]["connected"]
    eventually("and logs it", lambda: "agent-3 cannot reach agent-4" in run.daemons["coordinator"].said)
    assert "agent-4 cannot reach agent-3" not in run.daemons["coordinator"].said
    hosts.heal()
    run.finished()
    run.same_bits_as(simulated(K))


@pytest.mark.long
@pytest.mark.needs("cut")
@pytest.mark.parametrize("one_way", [False, True], ids=["both ways", "one way"])
def test_an_agent_loses_the_coordinator_for_a_while(
    deploy: Deploy, hosts: Lab, simulated: Simulated, one_way: bool
) -> None:
    run = deploy(K)
    run.start_all()
    run.reaches(20)
    hosts.cut("coordinator", "agent-4", one_way=one_way)
    eventually("it counts as gone", lambda: not agents(run.status())["agent-4"]["connected"])
    assert agents(run.status())["agent-1"]["connected"]
    hosts.heal()
    run.finished()
    run.same_bits_as(simulated(K))
    assert "agent-4 left" in run.daemons["coordinator"].said


@pytest.mark.long
@pytest.mark.needs("loss")
@pytest.mark.parametrize("percent", [1, 5])
def test_a_lossy_network(deploy: Deploy, hosts: Lab, simulated: Simulated, percent: int) -> None:
    run = deploy(100)
    hosts.lose(percent)
    run.start_all()
    run.finished()
    assert hosts.dropped() > 0
    run.same_bits_as(simulated(100))


@pytest.mark.long
@pytest.mark.needs("rate")
def test_a_narrow_link(deploy: Deploy, hosts: Lab, simulated: Simulated) -> None:
    run = deploy(100)
    hosts["agent-3"].limit_rate(1)
    run.start_all()
    run.reaches(10)
    status = run.status()
    assert status["state"] == "running" and all(agent["connected"] for agent in status["agents"])
    run.finished()
    run.same_bits_as(simulated(100))
    assert "left" not in run.daemons["coordinator"].said.replace("left at round 101", "")


@pytest.mark.long
def test_a_cable_is_out_longer_than_anybody_waits_for_a_ping(deploy: Deploy, hosts: Lab, simulated: Simulated) -> None:
    run = deploy(K)
    run.start_all()
    run.reaches(20)
    hosts["agent-5"].unplug()
    eventually("it counts as gone", lambda: not agents(run.status())["agent-5"]["connected"])
    hosts["agent-5"].plug()
    run.finished()
    run.same_bits_as(simulated(K))


@pytest.mark.long
def test_a_process_is_stopped_and_goes_on(deploy: Deploy, simulated: Simulated) -> None:
    run = deploy(K)
    run.start_all()
    run.reaches(20)
    run.daemons["agent-2"].signal(signal.SIGSTOP)
    eventually("it counts as gone", lambda: not agents(run.status())["agent-2"]["connected"])
    run.daemons["agent-2"].signal(signal.SIGCONT)
    run.finished()
    run.same_bits_as(simulated(K))


@pytest.mark.long
@pytest.mark.parametrize("rebooted", [False, True], ids=["while it runs", "with a reboot"])
def test_a_host_gets_another_address(deploy: Deploy, hosts: Lab, simulated: Simulated, rebooted: bool) -> None:
    """The certificate names the agent, not the address: the same identity goes on at the new one."""
    run = deploy(K)
    run.start_all()
    run.reaches(20)
    if rebooted:
        hosts["agent-4"].power_off()
        hosts["agent-4"].address = "10.77.0.77"
        hosts.write_names()
        hosts["agent-4"].power_on()
        run.start("agent-4")
    else:
        hosts["agent-4"].move("10.77.0.77")
    run.finished()
    run.same_bits_as(simulated(K))
    assert "agent-4 registered from ipv4:10.77.0.77:" in run.daemons["coordinator"].said


@pytest.mark.long
def test_every_agents_host_reboots_one_after_the_other(deploy: Deploy, hosts: Lab, simulated: Simulated) -> None:
    run = deploy(K)
    run.start_all()
    for i, agent in enumerate(AGENTS):
        run.reaches(20 * (i + 1), agent)
        hosts[agent].reboot()
        run.start(agent)
    run.finished()
    run.same_bits_as(simulated(K))


@pytest.mark.long
def test_all_hosts_lose_power_at_once(deploy: Deploy, hosts: Lab, simulated: Simulated) -> None:
    run = deploy(K)
    run.start_all()
    run.reaches(20)
    for host in hosts:
        host.power_off()
    for host in hosts:
        host.power_on()
    run.start_all(order=["agent-5", "agent-3", "coordinator", "agent-1", "agent-2", "agent-4"])
    run.finished()
    run.same_bits_as(simulated(K))


@pytest.mark.long
def test_the_same_agent_on_a_second_host_is_turned_away(deploy: Deploy, hosts: Lab, simulated: Simulated) -> None:
    """A start-up folder copied to two hosts: the second process hears why and exits 3; the run goes on."""
    run = deploy(K)
    run.start_all()
    run.reaches(20)
    assert run.ask("pause").returncode == 0
    stolen = hosts["agent-1"].folder / "agent-3"
    shutil.copytree(hosts["agent-3"].folder / "agent-3", stolen, ignore=shutil.ignore_patterns("state"))
    node = (stolen / "NODE.toml").read_text().replace(":7701", ":7702")
    (stolen / "NODE.toml").write_text(node)
    twin = hosts["agent-1"].run(*command("node", "--config", "agent-3/NODE.toml"), limit_s=120)
    assert twin.returncode == 3
    assert "another process runs as agent-3 right now" in twin.stderr
    assert run.ask("resume").returncode == 0
    run.finished()
    run.same_bits_as(simulated(K))
    refused = f"refused agent-3 at ipv4:{hosts['agent-1'].address}:"
    assert refused in run.daemons["coordinator"].said


def test_a_name_that_nobody_knows_is_said(deploy: Deploy, hosts: Lab) -> None:
    run = deploy(50)
    hosts.names.write_text("127.0.0.1 localhost\n", encoding="utf-8")
    done = run.ask("status", asked_on="agent-1")
    assert done.returncode == 3 and hosts["coordinator"].fqdn in done.stderr and "Traceback" not in done.stderr
