"""The files of deploy/, as the tests read them"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tests.serving import ROOT

__all__ = ["COMPOSE", "DEPLOY", "KUBERNETES", "dashboard", "expressions", "load", "manifests", "named"]

DEPLOY: Final = ROOT / "deploy"
COMPOSE: Final = DEPLOY / "compose"
KUBERNETES: Final = DEPLOY / "kubernetes"
_RANGE: Final = re.compile(r"\$__rate_interval|(?<=\[)\d+m(?=\])")
_THRESHOLD: Final = re.compile(r"\s*[<>]\s*[\d.]+")

Manifest = dict[str, Any]


def load(path: Path) -> Any:  # noqa: ANN401 - what a YAML file holds
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def manifests() -> Iterator[tuple[Path, Manifest]]:
    """Everything that goes to the API server of Kubernetes"""
    for path in sorted(KUBERNETES.rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if document["kind"] not in {"Kustomization", "EndpointPickerConfig"}:
                yield path, document


def named(kind: str, name: str) -> Manifest:
    """The one manifest of that kind and name"""
    (found,) = (one for _, one in manifests() if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def dashboard() -> Manifest:
    found: Manifest = json.loads((COMPOSE / "grafana" / "dashboards" / "kushi.json").read_text(encoding="utf-8"))
    return found


def expressions(window: str) -> dict[str, str]:
    """
    What is asked of Prometheus anywhere, by where: the variables of the dashboard are filled in as Grafana does, the
    alerts are without their thresholds, and rates are over `window`
    """
    found = {}
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            found[f"{panel['title']} / {target['legendFormat']} ({panel['id']})"] = target["expr"]
    for rule in load(COMPOSE / "alerts.yaml")["groups"][0]["rules"]:
        found[rule["alert"]] = _THRESHOLD.sub("", rule["expr"])
    for trigger in named("ScaledObject", "engine")["spec"]["triggers"]:
        found[f"KEDA {trigger['name']}"] = trigger["metadata"]["query"]
    variables = {"$model": ".+", "$endpoint": "/read"}
    for name, value in variables.items():
        found = {where: text.replace(name, value) for where, text in found.items()}
    return {where: _RANGE.sub(window, text) for where, text in found.items()}
