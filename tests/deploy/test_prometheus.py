"""A real Prometheus, configured as deploy/compose does it, over a real Bento and a real engine with traffic"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import httpx
import pytest
import yaml

from tests.deploy.manifests import COMPOSE, KUBERNETES, dashboard, expressions, load, manifests, named
from tests.e2e.bento import Bento
from tests.e2e.pictures import encoded, written
from tests.nvml import StandIn
from tests.raw_http import fetch
from tests.serving import ROOT, Server, free_port
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

DOWNLOADED = ROOT / "build" / "prometheus" / "usr" / "bin"
OURS = re.compile(r"\b(?:nv|kushi|bentoml)_\w+")


def program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=str(DOWNLOADED))
    if found is None:
        pytest.skip(f"NOT TESTED: no {name} here, `make test-deploy` takes it from Debian's packages")
    return found


@dataclass
class Site:
    prometheus: tuple[str, int]
    bento: Bento
    engine: Server

    def ask(self, path: str, **parameters: str) -> Any:  # noqa: ANN401 - JSON
        response = fetch(self.prometheus, "GET", f"/api/v1/{path}?{urlencode(parameters)}")
        answer = json.loads(response.body)
        assert answer["status"] == "success", (parameters, answer)
        return answer["data"]

    def values(self, expression: str) -> list[Any]:
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found

    def work(self) -> None:
        picture = encoded(written("birds"))
        with self.bento.client() as client:
            assert client.post("/read", files={"document": ("birds.png", picture, "image/png")}).status_code == 200
        with httpx.Client(base_url=f"http://127.0.0.1:{self.engine.http[1]}", timeout=10, trust_env=False) as client:
            for model, shape in (("detector", [1, 3, 32, 32]), ("orientation", [1, 3, 48, 192])):
                inputs = [{"name": "x", "datatype": "FP32", "shape": shape, "data": [0.0] * prod(shape)}]
                answer = client.post(f"/v2/models/{model}/infer", json={"inputs": inputs})
                assert answer.status_code == 200, answer.text


def configuration(folder: Path, bento: Bento, engine: Server) -> Path:
    """That of deploy/compose with addresses of this machine, and an engine of its own as in Kubernetes"""
    config = load(COMPOSE / "prometheus.yaml")
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(COMPOSE / name) for name in config["rule_files"]]
    (job,) = config["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["bento:3000"]}]
    job["static_configs"] = [
        {"targets": [f"127.0.0.1:{bento.port}"]},
        {"targets": [f"127.0.0.1:{engine.metrics_address[1]}"], "labels": {"pod": "engine-0"}},
    ]
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    prometheus, folder = program("prometheus"), tmp_path_factory.mktemp("prometheus")
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("LD_LIBRARY_PATH", str(StandIn.made(folder / "driver").folder))
            environment.delenv("CUDA_VISIBLE_DEVICES", raising=False)
            engine = Server.start(ROOT / "model_repository")
        stack.callback(engine.stop)
        bento = stack.enter_context(Bento(ROOT).until_ready())
        address = ("127.0.0.1", free_port())
        log = stack.enter_context((folder / "log").open("wb"))
        process = subprocess.Popen(
            [
                prometheus,
                f"--config.file={configuration(folder, bento, engine)}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address[0]}:{address[1]}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        stack.callback(process.wait, 30)
        stack.callback(process.terminate)
        site = Site(address, bento, engine)
        site.work()

        def is_ready() -> bool:
            assert process.poll() is None, (folder / "log").read_text()
            try:
                return fetch(address, "GET", "/-/ready").status == 200
            except OSError:
                return False

        eventually(is_ready, "Prometheus is ready")
        eventually(lambda: len(site.values("up == 1")) == 2, "both are scraped")
        site.work()
        yield site


def test_everything_that_is_asked_of_prometheus_has_an_answer(site: Site) -> None:
    asked = expressions("1m")
    missing = set(asked)

    def all_answer() -> bool:
        missing.difference_update(where for where in tuple(missing) if site.values(asked[where]))
        return not missing

    try:
        eventually(all_answer, "an answer to every expression", 30)
    except AssertionError:
        pytest.fail("\n".join(f"{where}: {asked[where]}" for where in sorted(missing)))


def test_the_answers_are_numbers_where_there_was_traffic(site: Site) -> None:
    def rows() -> float:
        made, ran = (f'sum(nv_inference_{name}{{model="detector"}})' for name in ("count", "exec_count"))
        (found,) = site.values(f"{made} / {ran}")
        return float(found["value"][1])

    eventually(lambda: rows() == 1.0, "the requests of this test, one by one")
    assert site.values("kushi_queue_requests >= 0 and kushi_running_requests >= 0")


def test_every_name_is_one_that_we_expose(site: Site) -> None:
    pages = [fetch(address, "GET", "/metrics").body.decode() for address in (site.bento.address, site.engine.http)]
    exposed = set(re.findall(r"^\w+", "\n".join(pages), re.MULTILINE))
    texts = expressions("1m")
    texts |= {one["name"]: one["definition"] for one in dashboard()["templating"]["list"] if "definition" in one}
    texts["picker"] = (KUBERNETES / "gateway" / "picker-config.yaml").read_text(encoding="utf-8")
    for where, text in texts.items():
        assert set(OURS.findall(text)) <= exposed, where
    assert all(OURS.search(text) for where, text in texts.items() if "up{" not in text)


def test_the_pod_monitor_drops_from_the_service_what_the_engine_tells_itself(site: Site) -> None:
    _, service = named("PodMonitor", "kushi")["spec"]["podMetricsEndpoints"]
    (rule,) = service["metricRelabelings"]
    page = fetch(site.bento.address, "GET", "/metrics").body.decode()
    names = set(re.findall(r"^\w+", page, re.MULTILINE))
    # BentoML's, and those of the service's own code
    assert {name for name in names if not re.fullmatch(rule["regex"], name)} == {
        name for name in names if name.startswith(("bentoml_", "reader_"))
    }


def test_prometheus_evaluates_the_rules(site: Site) -> None:
    def health() -> set[str]:
        (group,) = site.ask("rules")["groups"]
        assert [rule["name"] for rule in group["rules"]] == [
            rule["alert"] for rule in load(COMPOSE / "alerts.yaml")["groups"][0]["rules"]
        ]
        return {rule["health"] for rule in group["rules"]}

    eventually(lambda: health() == {"ok"}, "every rule has been evaluated")


def test_each_alert_fires_on_its_own_trouble_and_on_nothing_else() -> None:
    """The cases are in alerts_test.yaml"""
    cases = Path(__file__).parent / "alerts_test.yaml"
    ended = subprocess.run(
        [program("promtool"), "test", "rules", str(cases)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for rule in load(COMPOSE / "alerts.yaml")["groups"][0]["rules"]:
        assert cases.read_text().count(f"alertname: {rule['alert']}") >= 2, rule["alert"]


def test_prometheus_accepts_the_configuration_as_it_is() -> None:
    command = [program("promtool"), "check", "config", str(COMPOSE / "prometheus.yaml")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_bento_answers_every_probe(site: Site) -> None:
    (container,) = named("Deployment", "bento")["spec"]["template"]["spec"]["containers"]
    probes = [container[probe]["httpGet"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert {probe["port"] for probe in probes} == {"http"}
    assert [site.bento.answers(probe["path"]) for probe in probes] == [200, 200, 200]
    (path,) = re.findall(r"GET (/\w+) HTTP", str(load(COMPOSE / "compose.yaml")))
    assert site.bento.answers(path) == 200


def test_the_engine_answers_every_probe(site: Site) -> None:
    found = [one for _, one in manifests() if one["kind"] in {"Deployment", "ServingRuntime"}]
    specs = [one["spec"].get("template", one)["spec"] for one in found]
    containers = [one for spec in specs for one in spec["containers"] if one["image"] == "kushi:cpu" and "args" in one]
    assert len(containers) == 2
    for container in containers:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert site.engine.get(container[probe]["httpGet"]["path"]).status == 200
