"""
Every manifest is what Kubernetes takes; its schemas come with kubernetes-validate. Those of the operators are in no
package: of their kinds, what stands for a pod is checked here, and what they name in tests/unit/test_deploy.py.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.manifests import KUBERNETES, manifests

VERSION = "1.37"
LAYOUTS = sorted(path.parent.name for path in KUBERNETES.glob("*/kustomization.yaml"))
OPERATORS = {"HTTPRoute", "InferencePool", "InferenceService", "PodMonitor", "PrometheusRule", "ScaledObject"}


def check(manifest: dict[str, Any]) -> None:
    if manifest["kind"] == "ServingRuntime":
        spec = {key: manifest["spec"][key] for key in ("containers", "volumes")}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": manifest["metadata"], "spec": spec}
    if manifest["kind"] not in OPERATORS:
        kubernetes_validate.validate(manifest, VERSION, strict=True)


@pytest.mark.parametrize(
    ("path", "manifest"), [pytest.param(path, one, id=f"{path.parent.name}-{one['kind']}") for path, one in manifests()]
)
def test_a_manifest_has_no_field_that_its_schema_does_not_know(path: Path, manifest: dict[str, Any]) -> None:
    check(manifest)
    if manifest["kind"] not in {*OPERATORS, "ServingRuntime"}:
        with pytest.raises(kubernetes_validate.ValidationError):
            check({**manifest, "specification": {}})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_is_built_into_valid_manifests(layout: str) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("NOT TESTED: no kubectl here, so nothing puts the folders of deploy/kubernetes together")
    built = subprocess.run(
        [kubectl, "kustomize", str(KUBERNETES / layout)], capture_output=True, text=True, timeout=60, check=False
    )
    assert built.returncode == 0, built.stderr
    found = list(yaml.safe_load_all(built.stdout))
    for manifest in found:
        check(manifest)
    assert found


def test_two_tiers_have_an_engine_elsewhere_and_one_autoscaler_each() -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("NOT TESTED: no kubectl here, so nothing puts the folders of deploy/kubernetes together")
    text = subprocess.check_output([kubectl, "kustomize", str(KUBERNETES / "keda")], text=True, timeout=60)
    built = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text)}
    (container,) = built["Deployment", "bento"]["spec"]["template"]["spec"]["containers"]
    given = {one["name"]: one["value"] for one in container["env"]}
    assert given["KUSHI_ENGINE_URL"] == "http://engine:8000"
    assert "KUSHI_METRICS_PORT" not in given
    assert [port["name"] for port in container["ports"]] == ["http"]
    scalers = [key for key in built if key[0] in {"HorizontalPodAutoscaler", "ScaledObject"}]
    assert sorted(scalers) == [("HorizontalPodAutoscaler", "bento"), ("ScaledObject", "engine")]
