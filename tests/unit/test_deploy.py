"""What the files of deploy/ say of ports, variables, flags, users and times is what the code says"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import attrs
import pytest

import service
from runners.elsewhere import engine_elsewhere
from runners.settings import ServerSettings, read_settings
from runners.settings.flags import normalize_flags
from tests.bentoml_internals import (
    DEFAULT_BENTO_ENVS,
    PORT,
    CreateDeploymentSchema,
    DeploymentServiceConfig,
    DeploymentTargetHPAConf,
    EnvItemSchema,
)
from tests.deploy.manifests import COMPOSE, DEPLOY, KUBERNETES, load, manifests, named
from tests.serving import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runners.bento.web.edge import EdgeService

SERVICE = cast("EdgeService", service.Kushi)
IMAGE = "kushi:cpu"
BENTO, ENGINE = ("Deployment", "bento"), ("Deployment", "engine")


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """The specifications of the pods that run our image"""
    for _, one in manifests():
        spec = one["spec"]["template"]["spec"] if one["kind"] == "Deployment" else one.get("spec", {})
        if any(container["image"] == IMAGE for container in spec.get("containers", ())):
            yield f"{one['kind']} {one['metadata']['name']}", spec


def container_of(spec: dict[str, Any]) -> dict[str, Any]:
    (container,) = spec["containers"]
    assert isinstance(container, dict)
    return container


def pod(key: tuple[str, str]) -> dict[str, Any]:
    spec = named(*key)["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def settings_of(container: dict[str, Any]) -> ServerSettings:
    """What the engine makes of the arguments of a container"""
    assert container["args"][:4] == ["python", "-m", "runners", "serve"]
    flags = dict(word.removeprefix("--").split("=") for word in normalize_flags(container["args"][4:]))
    repository = flags.pop("model-repository")
    named_flags = {name.replace("-", "_"): value for name, value in flags.items()}
    return read_settings({**named_flags, "model_repository": [repository]})


def ports(container: dict[str, Any]) -> dict[str, int]:
    return {port.get("name", "http"): port["containerPort"] for port in container["ports"]}


def test_there_are_pods_to_look_at() -> None:
    assert [name for name, _ in pods()] == ["Deployment bento", "ServingRuntime kushi", "Deployment engine"]


def test_every_container_of_ours_runs_as_the_user_of_the_image_and_writes_to_no_file_system_of_it() -> None:
    for name, spec in pods():
        container = container_of(spec)
        security = {**spec.get("securityContext", {}), **container["securityContext"]}
        assert security["runAsUser"] == DEFAULT_BENTO_ENVS["uid_gid"], name
        assert security["runAsNonRoot"], name
        assert security["readOnlyRootFilesystem"], name
        assert not security["allowPrivilegeEscalation"], name
        assert security["capabilities"] == {"drop": ["ALL"]}, name
        assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp"], name
    uid = DEFAULT_BENTO_ENVS["uid_gid"]
    assert load(COMPOSE / "compose.yaml")["services"]["bento"]["user"] == f"{uid}:{uid}"


def test_no_variable_comes_from_the_names_of_services() -> None:
    for name, spec in pods():
        if not name.startswith("ServingRuntime"):
            assert spec["enableServiceLinks"] is False, name
    assert named("InferenceService", "resnet")["spec"]["predictor"]["enableServiceLinks"] is False


def test_no_pod_has_a_token_of_the_cluster() -> None:
    specs = [pod(BENTO), pod(ENGINE), named("InferenceService", "resnet")["spec"]["predictor"]]
    assert [spec["automountServiceAccountToken"] for spec in specs] == [False] * 3


def test_the_workers_are_not_as_many_as_the_processors_of_the_node() -> None:
    resources = container_of(pod(BENTO))["resources"]
    assert resources["limits"]["cpu"] == resources["requests"]["cpu"]


def test_every_variable_is_one_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {one["name"]: one["value"] for _, spec in pods() for one in container_of(spec).get("env", ())}
    given |= load(COMPOSE / "compose.yaml")["services"]["bento"]["environment"]
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert read_settings({}).doors.metrics.port == ports(container_of(pod(BENTO)))["metrics"]
    tiers = (KUBERNETES / "tiers" / "kustomization.yaml").read_text(encoding="utf-8")
    assert "name: KUSHI_ENGINE_URL\n" in tiers
    monkeypatch.setenv("KUSHI_ENGINE_URL", "http://engine:8000")
    found = engine_elsewhere()
    assert found is not None
    assert found.url == "http://engine:8000"


def test_the_ports_are_those_that_are_listened_on() -> None:
    assert ports(container_of(pod(BENTO)))["http"] == PORT.get()
    engine = container_of(pod(ENGINE))
    settings = settings_of(engine)
    assert ports(engine) == {"http-oip": settings.doors.http.port, "metrics": settings.doors.metrics.port}
    runtime = named("ServingRuntime", "kushi")["spec"]
    settings = settings_of(container_of(runtime))
    assert list(ports(container_of(runtime)).values()) == [settings.doors.http.port]
    assert runtime["annotations"]["prometheus.kserve.io/port"] == str(settings.doors.metrics.port)
    (published,) = load(COMPOSE / "compose.yaml")["services"]["bento"]["ports"]
    assert published.endswith(f":{PORT.get()}")


def test_the_logic_finds_the_service_of_the_engine() -> None:
    (port, *_) = named("Service", "engine")["spec"]["ports"]
    assert f"value: http://engine:{port['port']}\n" in (KUBERNETES / "tiers" / "kustomization.yaml").read_text()
    assert urlsplit(f"http://engine:{port['port']}").port == ports(container_of(pod(ENGINE)))[port["targetPort"]]


def test_whatever_names_something_names_what_is_there() -> None:
    labels = {one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"] for _, one in deployments()}
    for _, one in manifests():
        spec, kind = one.get("spec", {}), one["kind"]
        selector = spec.get("selector", {})
        wanted = selector.get("matchLabels", selector)
        if wanted:
            found = [name for name, has in labels.items() if wanted.items() <= has.items()]
            expected = ["bento", "engine"] if kind == "PodMonitor" else [one["metadata"]["name"]]
            assert sorted(found) == expected, one["metadata"]
        if "scaleTargetRef" in spec:
            assert spec["scaleTargetRef"]["name"] in labels
    known = {port for key in (BENTO, ENGINE) for port in ports(container_of(pod(key)))}
    assert {end["port"] for end in named("PodMonitor", "kushi")["spec"]["podMetricsEndpoints"]} <= known
    pool = named("InferencePool", "engine")["spec"]
    assert [port["number"] for port in pool["targetPorts"]] == [ports(container_of(pod(ENGINE)))["http-oip"]]
    assert named("Service", pool["endpointPickerRef"]["name"])["spec"]["ports"][0]["port"] == 9002


def deployments() -> Iterator[tuple[str, dict[str, Any]]]:
    return ((one["metadata"]["name"], one) for _, one in manifests() if one["kind"] == "Deployment")


def test_a_pod_has_the_time_to_end_what_it_has_accepted() -> None:
    engine_seconds = settings_of(container_of(pod(ENGINE))).exit_timeout_seconds
    longest = SERVICE.config["traffic"]["timeout"]
    for key, needed in ((BENTO, longest + SERVICE.limits.exit_seconds), (ENGINE, engine_seconds)):
        spec = pod(key)
        pause = container_of(spec)["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert spec["terminationGracePeriodSeconds"] >= pause + needed + 5, key
    predictor = named("InferenceService", "resnet")["spec"]["predictor"]
    assert predictor["terminationGracePeriodSeconds"] == pod(ENGINE)["terminationGracePeriodSeconds"]
    grace = load(COMPOSE / "compose.yaml")["services"]["bento"]["stop_grace_period"]
    assert int(grace.removesuffix("s")) >= longest + SERVICE.limits.exit_seconds + 5


def test_the_engine_starts_where_a_bento_has_its_sources_and_models() -> None:
    included = [path.removeprefix("/") for path in load(ROOT / "bentofile.yaml")["include"]]
    for name, spec in pods():
        container = container_of(spec)
        if "args" in container:
            assert container["workingDir"] == f"{DEFAULT_BENTO_ENVS['path']}/src", name
            assert "runners/" in included
            (repository,) = settings_of(container).repositories
            assert f"{repository}/" in included or str(repository) == "/mnt/models", name


def test_the_operator_has_the_alerts_of_compose() -> None:
    assert named("PrometheusRule", "kushi")["spec"] == load(COMPOSE / "alerts.yaml")


def test_bentocloud_is_told_of_services_that_there_are_in_fields_that_it_knows() -> None:
    given = load(DEPLOY / "bentocloud.yaml")
    assert set(given) <= _fields(CreateDeploymentSchema)
    assert set(given["services"]) == set(SERVICE.all_services())
    for config in given["services"].values():
        assert set(config) <= _fields(DeploymentServiceConfig)
        assert set(config["scaling"]) <= _fields(DeploymentTargetHPAConf)
    assert all(set(one) <= _fields(EnvItemSchema) for one in given["envs"])


def _fields(schema: type) -> set[str]:
    return {field.name for field in attrs.fields(schema)}
