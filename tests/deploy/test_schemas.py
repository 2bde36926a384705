"""compose.yaml and the Kubernetes manifests against the schemas of those who read them (make deploy-check SHARE=1)."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.deploy
DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
# podFailurePolicy is stable from 1.31 on.
VERSIONS = ("1.31", "1.37")


def manifests() -> list[dict[str, Any]]:
    """Every object that the manifests make of one agent, the coordinator and the network."""
    texts = [path.read_text().replace("AGENT", "agent-1") for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))]
    return [one for text in texts for one in yaml.safe_load_all(text)]


@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_fit_the_schemas_of_kubernetes(version: str) -> None:
    import kubernetes_validate

    found = manifests()
    assert len(found) == 7
    for one in found:
        assert kubernetes_validate.validate(one, version, strict=True) == version
    jobs = [one for one in found if one["kind"] == "Job"]
    for path, value in (
        (("livenessProbe", "httpGet", "paht"), "/livez"),
        (("readinessProbe", "periodSeconds"), "5s"),
        (("securityContext", "capabilities", "drop"), "ALL"),
    ):
        wrong = copy.deepcopy(jobs[0])
        place = wrong["spec"]["template"]["spec"]["containers"][0]
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, version, strict=True)


def test_the_compose_file_fits_the_compose_specification() -> None:
    from compose_spec import PyCompose

    held = yaml.safe_load((DEPLOY / "compose.yaml").read_text())  # anchors and merges as compose resolves them
    made = PyCompose.from_yaml(yaml.safe_dump(held))
    made.validate()
    assert set(made.service_names()) == set(held["services"])
    for service, key, value in (
        ("agent-1", "helthcheck", {}),
        ("agent-1", "read_only", "maybe"),
        ("coordinator", "healthcheck", {"test": ["CMD", "true"], "interval": "ten"}),
        ("coordinator", "volumes", [{"type": "volume", "source": "s", "target": "/s", "volume": {"subpth": "c"}}]),
    ):
        wrong = copy.deepcopy(held)
        wrong["services"][service][key] = value
        with pytest.raises(ValueError, match=f"services.{service}"):
            PyCompose.from_yaml(yaml.safe_dump(wrong))
