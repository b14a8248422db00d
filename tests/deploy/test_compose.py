"""docker compose reads deploy/compose as it is meant"""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
import yaml

from tests.deploy.manifests import COMPOSE, dashboard, load


def answers(command: list[str]) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run([*command, "version"], capture_output=True, timeout=60, check=False).returncode == 0


def config() -> dict[str, dict[str, dict[str, object]]]:
    file = str(COMPOSE / "compose.yaml")
    commands = [command for command in (["docker", "compose"], ["docker-compose"]) if answers(command)]
    if commands:
        text = subprocess.check_output([*commands[0], "-f", file, "config"], text=True, timeout=60)
        read: dict[str, dict[str, dict[str, object]]] = yaml.safe_load(text)
        return read
    pytest.skip("NOT TESTED: no docker compose here to read deploy/compose/compose.yaml")


def test_every_service_is_locked_down() -> None:
    services = config()["services"]
    assert set(services) == {"bento", "prometheus", "grafana"}
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert not str(service["user"]).startswith("0"), name
        assert "127.0.0.1" in json.dumps(service["ports"]), name


def test_every_file_that_a_service_mounts_is_there() -> None:
    for service in load(COMPOSE / "compose.yaml")["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert not source.startswith(".") or (COMPOSE / source).exists(), source


def test_grafana_finds_its_dashboard_and_the_dashboard_its_source() -> None:
    provisioned = COMPOSE / "grafana" / "provisioning"
    services = load(COMPOSE / "compose.yaml")["services"]
    (source,) = load(provisioned / "datasources" / "prometheus.yaml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = load(provisioned / "dashboards" / "kushi.yaml")["providers"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in services["grafana"]["volumes"]
    variables = {one["name"]: one for one in dashboard()["templating"]["list"]}
    assert variables["source"]["query"] == source["type"]
    assert variables["source"]["current"]["value"] == source["uid"]


def test_the_panels_lie_side_by_side_and_ask_the_chosen_source() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24, panel["title"]
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${source}"}
