"""What deploy/ says agrees with the commands, the run file and itself; nothing here starts a container or a service."""

from __future__ import annotations

import configparser
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpgt_node.config import load_run
from dpgt_node.errors import ExitCode
from dpgt_node.runtime.watching.probes import LIVE, READY

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
RUN = load_run(DEPLOY / "run.toml")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
KUBERNETES = DEPLOY / "kubernetes"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SCRIPTS = [DEPLOY / "two-hosts" / "run.sh", ROOT / ".ci" / "run"]


@cache
def help_of(*verb: str) -> str:
    command = [sys.executable, "-m", "dpgt_node", *verb, "--help"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def unknown_options(arguments: list[str]) -> list[str]:
    """Options of one ``dpgt`` command line that its verb does not have."""
    verb = arguments[:2] if arguments[0] == "pki" else arguments[:1]
    given = [a.split("=")[0] for a in arguments if a.startswith("--")]
    return [option for option in given if not re.search(rf"{option}\b", help_of(*verb))]


def unit(path: Path) -> dict[str, list[str]]:
    """All values of every key of a unit file, sections joined (keys do not repeat between sections)."""
    parser = configparser.RawConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path)
    return {key: value.split("\n") for section in parser.sections() for key, value in parser.items(section)}


def test_unknown_options_are_found() -> None:
    assert unknown_options(["node", "--config", "x", "--configure"]) == ["--configure"]


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.toml")), ids=lambda path: path.name)
def test_what_is_deployed_keeps_private_states_on_their_hosts(path: Path) -> None:
    assert load_run(path).evaluate.metrics == "local"


def test_compose_has_one_service_for_each_agent_and_each_sees_only_its_own_folder() -> None:
    services = COMPOSE["services"]
    assert set(services) == {"pki", "coordinator", *RUN.graph.agents, "prometheus", "grafana"}
    for name in ("coordinator", *RUN.graph.agents):
        mounts = {v["target"]: v for v in services[name]["volumes"]}
        assert mounts["/startup"]["source"] == "startup"
        assert mounts["/startup"]["volume"] == {"subpath": name}
        assert {v["source"] for v in mounts.values()} <= set(COMPOSE["volumes"])


def test_compose_gives_containers_no_more_than_they_need() -> None:
    for name, service in COMPOSE["services"].items():
        assert service["cap_drop"] == ["ALL"] and (service.get("read_only") is True or name == "grafana"), name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert not {"privileged", "pid", "ipc"} & set(service), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert "ports" not in service or name == "grafana"
    assert COMPOSE["services"]["pki"]["network_mode"] == "none"


def test_compose_names_every_host_by_its_service() -> None:
    hosts = [a.removeprefix("--host=") for a in COMPOSE["services"]["pki"]["command"] if a.startswith("--host=")]
    assert [h.split("=")[0] for h in hosts] == ["coordinator", *RUN.graph.agents]
    assert all(address.split(":")[0] == name for name, address in (h.split("=") for h in hosts))
    listen = next(a for a in COMPOSE["services"]["coordinator"]["command"] if a.startswith("--listen="))
    assert listen.rsplit(":", 1)[1] == hosts[0].rsplit(":", 1)[1]


def asked_for(arguments: list[str]) -> dict[str, str]:
    """The addresses that ``--metrics`` and ``--health`` of a command line listen on."""
    return {m[1]: m[2] for a in arguments if (m := re.fullmatch(r"--(metrics|health)=(.+)", a))}


def test_compose_probes_and_scrapes_what_the_daemons_serve() -> None:
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "compose.yml").read_text())["scrape_configs"][0][
        "dns_sd_configs"
    ][0]
    assert scraped["names"] == ["coordinator", *RUN.graph.agents] and scraped["type"] == "A"
    for name in scraped["names"]:
        service = COMPOSE["services"][name]
        assert asked_for(service["command"]) == {"metrics": f"0.0.0.0:{scraped['port']}", "health": "9401"}
        assert f"http://127.0.0.1:9401{READY}'" in service["healthcheck"]["test"][-1]
    mounts = [COMPOSE["services"][name]["volumes"] for name in ("prometheus", "grafana")]
    for path in (v.split(":")[0] for volumes in mounts for v in volumes if v.startswith(".")):
        assert (DEPLOY / path).exists(), path


@pytest.mark.parametrize("service", [name for name, one in COMPOSE["services"].items() if "command" in one])
def test_compose_commands_exist(service: str) -> None:
    assert unknown_options(COMPOSE["services"][service]["command"]) == []


def test_dockerfile_copies_what_the_context_holds() -> None:
    copied = [
        word
        for line in (DEPLOY / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY") and "--from" not in line
        for word in line.split()[1:-1]
        if not word.startswith("--")
    ]
    allowed = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"}
    assert set(copied) == allowed
    assert [name for name in copied if not (ROOT / name).exists()] == []


def objects(host: str) -> dict[str, Any]:
    """The Kubernetes objects of one process by kind, as its README makes them."""
    name = "coordinator.yaml" if host == "coordinator" else "agent.yaml"
    found = list(yaml.safe_load_all((KUBERNETES / name).read_text().replace("AGENT", host)))
    assert len({o["kind"] for o in found}) == len(found)
    return {o["kind"]: o for o in found}


@pytest.mark.parametrize("host", ["coordinator", "agent-1", "agent-5"])
def test_kubernetes_runs_each_process_with_its_own_secret_volume_and_name(host: str) -> None:
    made = objects(host)
    assert set(made) == {"Service", "PersistentVolumeClaim", "Job"}
    assert {o["apiVersion"] for o in made.values()} == {"v1", "batch/v1"}
    template = made["Job"]["spec"]["template"]
    pod = template["spec"]
    (container,) = pod["containers"]
    assert made["Service"]["metadata"]["name"] == made["Job"]["metadata"]["name"] == host
    assert made["Service"]["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert made["Service"]["spec"]["ports"][0]["port"] == container["ports"][0]["containerPort"]
    volumes = {v["name"]: v for v in pod["volumes"]}
    assert volumes["startup"]["secret"] == {"secretName": host, "defaultMode": 0o440}
    claims = [v["persistentVolumeClaim"]["claimName"] for v in volumes.values() if "persistentVolumeClaim" in v]
    assert claims == [made["PersistentVolumeClaim"]["metadata"]["name"]]
    assert {m["name"] for m in container["volumeMounts"]} == set(volumes)
    assert unknown_options(container["args"]) == []
    assert all("AGENT" not in yaml.safe_dump(o) for o in made.values())


@pytest.mark.parametrize("host", ["coordinator", "agent-1"])
def test_kubernetes_gives_pods_no_more_than_they_need(host: str) -> None:
    pod = objects(host)["Job"]["spec"]["template"]["spec"]
    user = re.search(r"--uid (\d+)", (DEPLOY / "Dockerfile").read_text())
    group = re.search(r"--gid (\d+)", (DEPLOY / "Dockerfile").read_text())
    assert user is not None and group is not None
    assert {pod["securityContext"][key] for key in ("runAsGroup", "fsGroup")} == {int(group[1])}
    assert pod["securityContext"]["runAsUser"] == int(user[1])
    assert pod["securityContext"]["runAsNonRoot"] is True and pod["automountServiceAccountToken"] is False
    inside = pod["containers"][0]["securityContext"]
    assert inside["capabilities"] == {"drop": ["ALL"]} and inside["readOnlyRootFilesystem"] is True
    assert inside["allowPrivilegeEscalation"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)


@pytest.mark.parametrize("host", ["coordinator", "agent-1"])
def test_kubernetes_probes_and_scrapes_what_the_daemons_serve(host: str) -> None:
    (container,) = objects(host)["Job"]["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    asked = asked_for(container["args"])
    assert asked == {name: f"0.0.0.0:{ports[name]}" for name in ("metrics", "health")}
    probes = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")}
    assert {kind: probe["path"] for kind, probe in probes.items()} == {
        "startup": READY,
        "readiness": READY,
        "liveness": LIVE,
    }
    assert all(probe["port"] == "health" for probe in probes.values())
    policy = yaml.safe_load((KUBERNETES / "network.yaml").read_text())
    assert [rule["ports"] for rule in policy["spec"]["ingress"]] == [[{"port": "dpgt"}], [{"port": "metrics"}]]
    kept = yaml.safe_load((DEPLOY / "prometheus" / "kubernetes.yml").read_text())["scrape_configs"][0][
        "relabel_configs"
    ]
    assert [rule["regex"] for rule in kept if rule.get("action") == "keep"] == ["dpgt", "metrics"]


@pytest.mark.parametrize("host", ["coordinator", "agent-1"])
def test_kubernetes_starts_again_what_was_killed_and_nothing_that_an_operator_must_mend(host: str) -> None:
    spec = objects(host)["Job"]["spec"]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"  # a podFailurePolicy demands it
    ends = next(rule for rule in spec["podFailurePolicy"]["rules"] if rule["action"] == "FailJob")["onExitCodes"]
    assert ends["containerName"] == spec["template"]["spec"]["containers"][0]["name"]
    retried = {ExitCode.PEER_LOST, ExitCode.BUG, ExitCode.DONE, ExitCode.CHECK_FAILED}
    assert set(ends["values"]) == set(ExitCode) - retried


def test_kubernetes_commands_are_those_of_its_readme() -> None:
    text = (KUBERNETES / "README.md").read_text()
    hosts = dict(re.findall(r"--host (\S+)=(\S+)", text))
    assert hosts == {name: name for name in ("coordinator", *RUN.graph.agents)}
    for name in re.findall(r"deploy/kubernetes/\S+\.yaml", text):
        assert (ROOT / name).exists()
    policy = yaml.safe_load((KUBERNETES / "network.yaml").read_text())
    label = policy["spec"]["podSelector"]["matchLabels"]
    for host in hosts:
        assert label.items() <= objects(host)["Job"]["spec"]["template"]["metadata"]["labels"].items()
    command = re.search(r"exec job/coordinator -- dpgt (.*)", text)
    assert command is not None and unknown_options(shlex.split(command[1])) == []


@pytest.mark.parametrize("path", UNITS, ids=lambda p: p.name)
def test_units_run_commands_that_exist_unprivileged(path: Path) -> None:
    values = unit(path)
    executable, *arguments = shlex.split(values["ExecStart"][0])
    assert executable == "/opt/dpgt/bin/dpgt"
    assert unknown_options(arguments) == []
    shut = ("PrivateTmp", "PrivateDevices", "PrivateMounts", "PrivateUsers", "RestrictNamespaces")
    for key in ("DynamicUser", "NoNewPrivileges", *shut):
        assert values[key] == ["yes"], key
    assert values["CapabilityBoundingSet"] == [""]
    assert values["ProtectSystem"] == ["strict"]
    assert values["UMask"] == ["0077"]
    assert "@" not in path.name or values["User"] == ["dpgt-%i"], "systemd gives instances of a template one user else"
    assert values["Restart"] == ["on-abnormal"] and values["RestartForceExitStatus"] == ["70"]
    assert values["StartLimitBurst"] == ["5"] and values["StartLimitIntervalSec"] == ["60"]


def test_both_kinds_of_unit_are_there() -> None:
    assert [p.name for p in UNITS] == ["dpgt-coordinator.service", "dpgt-node@.service"]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_scripts_parse_and_are_executable(path: Path) -> None:
    assert path.stat().st_mode & 0o111
    assert "set -Eeuo pipefail" in path.read_text()
    subprocess.run(["bash", "-n", str(path)], check=True)


def test_walk_through_refuses_what_it_does_not_know() -> None:
    script = str(DEPLOY / "two-hosts" / "run.sh")
    result = subprocess.run([script, "--what"], capture_output=True, text=True, check=False)
    assert result.returncode == 2 and "--what" in result.stderr
