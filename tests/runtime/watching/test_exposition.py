"""``/metrics`` of real daemons: every metric that they export is declared, documented, and none is private."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from dpgt_node.protocol.messages import AgentStatus, StatusReply
from dpgt_node.protocol.pace import Pace
from dpgt_node.runtime.agent import exported as of_node
from dpgt_node.runtime.coordinator import exported as of_coordinator
from dpgt_node.runtime.watching.exposition import PROCESS, Family, Sample, metrics_page
from dpgt_node.runtime.watching.sites import HEALTH, METRICS, Sites
from tests.runtime.cluster import cluster, eventually, make_run

ROOT = Path(__file__).resolve().parents[3]
PRIVATE = re.compile("loss|accura|grad|norm|state_|weight|sample|batch|label")


async def asked(url: str, path: str) -> tuple[int, bytes]:
    """Status and body of ``path``."""
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


async def probed(url: str, manifest: str) -> set[tuple[int, bytes]]:
    """What the probes of a Kubernetes manifest hear of the daemon at ``url``."""
    text = (ROOT / "deploy" / "kubernetes" / manifest).read_text(encoding="utf-8")
    (job,) = (one for one in yaml.safe_load_all(text) if one["kind"] == "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return {await asked(url, container[f"{kind}Probe"]["httpGet"]["path"]) for kind in ("startup", "liveness")}


async def scraped(url: str) -> dict[str, dict[tuple[str, ...], float]]:
    """By name, by the values of labels in the order of their names."""
    status, body = await asked(url, "/metrics")
    assert status == 200
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            key = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[key] = sample.value
    return found


def documented(page: str) -> set[str]:
    return set(re.findall(r"`((?:dpgt|process)_[a-z_]+)`", page))


async def test_both_daemons_export_what_is_documented_and_nothing_private(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    wanted = {METRICS: "127.0.0.1:0", HEALTH: "127.0.0.2:0"}
    async with cluster(tmp_path, make_run(1_000_000), sites=Sites(wanted)) as c:
        node_sites = Sites(wanted)
        c.start("agent-1", sites=node_sites)
        c.start("agent-2")
        c.start("agent-3")
        await c.reached(30)
        address = json.loads((c.out / "coordinator.json").read_text())
        url = address["metrics"]
        well = {(200, b"ready\n"), (200, b"alive\n")}
        assert await probed(address["health"], "coordinator.yaml") == well
        assert await probed(node_sites.urls()["health"], "agent.yaml") == well
        assert (await asked(address["health"], "/metrics"))[0] == 404, "who probes learns nothing of the run"
        coordinator, node = await scraped(url), await scraped(node_sites.urls()["metrics"])
        k = coordinator["dpgt_run_round"][()]
        later = await eventually("rounds go on", lambda: c.round("agent-1") > k + 10) and await scraped(url)
        c.stop.set()
        assert c.serving is not None
        await asyncio.gather(c.serving, *c.agents.values(), return_exceptions=True)
    exported = {*coordinator, *node}
    declared = {one.name for one in (*of_coordinator.FAMILIES, *of_node.FAMILIES)}
    assert exported <= documented(page) == declared | set(PROCESS)
    assert declared - exported <= {
        "dpgt_run_gives_up_seconds",  # nobody is missing
        "dpgt_agent_waits_for",
        "dpgt_agent_epsilon",  # no clip, so no epsilon
        "dpgt_node_epsilon",
        "dpgt_node_epsilon_of_run",
        "dpgt_node_outlier_rounds_total",  # of [robust]
    }
    assert not [name for name in exported if PRIVATE.search(name)]
    assert "accuracy_test" not in str(coordinator) and k >= 20
    assert coordinator["dpgt_agent_connected"] == {(f"agent-{i}",): 1 for i in (1, 2, 3)}
    assert later["dpgt_run_round"][()] > k
    phases = sum(node["dpgt_node_phase_seconds_total"].values())
    assert node["dpgt_node_rounds_total"][()] >= 20 and phases > 0 and node["dpgt_node_sent_bytes_total"][()] > 0


def test_a_coordinators_scrape_is_the_status_by_agent() -> None:
    here = AgentStatus("agent-1", True, 7, 0.1, 0.9, 1.5, waits_for=("agent-2",))
    gone = AgentStatus("agent-2", False, 5, 40.0, 0.8, 2.5, state="left", missing_s=12.5)
    reply = StatusReply("running", 4, 30, bytes(16), "r", 8.0, (here, gone), accountant="gdp", gives_up_s=47.5)
    pace = Pace(["agent-1", "agent-2"])
    pace.done("agent-1", 3, (1_000_000, 0, 0, 0, 0, 2_500_000))
    noted = Counter({"info": 5, "warning": 2, "error": 1})
    found = {(one.name.removeprefix("dpgt_"), *one.labels): one.value for one in
             of_coordinator.samples(make_run(), reply, pace, noted)}  # fmt: skip
    for name, status in (("agent-1", here), ("agent-2", gone)):
        assert found["agent_epsilon", name, "gdp"] == status.epsilon and found["agent_round", name] == status.k
        assert found["agent_connected", name] == status.connected
        assert found["agent_missing_seconds", name] == (status.missing_s or 0.0)
    assert found["run_agents_connected",] == 1 and found["run_agents",] == 2 and found["run_gives_up_seconds",] == 47.5
    assert [key for key in found if key[0] == "agent_waits_for"] == [("agent_waits_for", "agent-1", "agent-2")]
    assert [found["events_total", level] for level in ("info", "warning", "error")] == [5, 2, 1]
    assert found["agent_phase_seconds_total", "agent-1", "compute"] == 1.0
    assert (
        found["agent_phase_seconds_total", "agent-1", "evaluate"] == 2.5 and found["agent_rounds_total", "agent-1"] == 3
    )
    assert found["run_round",] == 4 and found["run_last_round",] == 30 and found["run_rounds_per_second",] == 8.0


async def test_an_undeclared_metric_cannot_be_exported_nor_an_undocumented_one_pass() -> None:
    page = metrics_page([Family("dpgt_a", "gauge", "A")], lambda: [Sample("dpgt_loss", 1.0)])
    with pytest.raises(KeyError):
        await page({})
    assert documented("| `dpgt_a` | `process_b`, `other` |") == {"dpgt_a", "process_b"}


def unknown_metrics(expression: str) -> set[str]:
    """Names in an expression of PromQL that no daemon exports; labels and functions are none."""
    known = {one.name for one in (*of_coordinator.FAMILIES, *of_node.FAMILIES)} | set(PROCESS)
    words = re.findall(r"\b(?:dpgt|process)_[a-z_]+", re.sub(r'"[^"]*"', "", expression))
    assert words, expression
    return set(words) - known


def test_the_dashboard_asks_for_metrics_and_labels_that_exist() -> None:
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "dashboard.json").read_text(encoding="utf-8"))
    labels = {one.name: {*one.labels, "job", "instance"} for one in (*of_coordinator.FAMILIES, *of_node.FAMILIES)}
    panels, areas = dashboard["panels"], []
    assert len({panel["id"] for panel in panels}) == len(panels) >= 10
    for panel in panels:
        place = panel["gridPos"]
        areas += [
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
        for target in panel["targets"]:
            assert unknown_metrics(target["expr"]) == set(), panel["title"]
            for name, asked in re.findall(r"(dpgt_\w+)\{([^}]*)\}", target["expr"]):
                assert set(re.findall(r"(\w+)[=!]", asked)) <= labels[name], target["expr"]
            shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            names = set(re.findall(r"dpgt_\w+|process_\w+", target["expr"]))
            assert any(shown <= labels.get(name, {"job", "instance"}) for name in names), panel["title"]
    assert len(set(areas)) == len(areas) and max(x for x, _ in areas) < 24, "panels overlap"
    assert unknown_metrics("rate(dpgt_agent_losses_total[5m])") == {"dpgt_agent_losses_total"}
