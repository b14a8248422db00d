"""Metrics that models make, on the port where the server has its own"""

from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from tritonclient.http import InferenceServerClient
from tritonclient.utils import InferenceServerException

from tests.conftest import StartServer
from tests.integration.python_models import models
from tests.integration.python_models.test_models import client_of, tensor
from tests.raw_http import fetch
from tests.serving import Server


def say(client: InferenceServerClient, what: str, model: str = "counted") -> str:
    word = np.array([what.encode()], np.object_)
    answer: bytes = client.infer(model, [tensor("WHAT", word)]).as_numpy("SAID")[0]
    return answer.decode()


def families(server: Server) -> dict[str, tuple[str, str, list[Sample]]]:
    """What a client of Prometheus reads, but for what every server has"""
    page = fetch(server.metrics_address, "GET", "/metrics").body.decode()
    read = [*text_string_to_metric_families(page)]
    return {
        family.name: (family.type, family.documentation, family.samples)
        for family in read
        if not family.name.startswith(("nv_", "kushi_"))
    }


def values(server: Server, name: str) -> dict[str, float]:
    return {sample.name + str(sample.labels): sample.value for sample in families(server)[name][2]}


def test_the_metrics_of_a_model_stand_beside_those_of_the_server(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "counted", models.COUNTED, models.COUNTED_CONFIG)
    server = start_server(repository)
    client = client_of(server)
    say(client, "[self.asked_here.increment(1.5) for _ in range(1000)]")
    say(client, "[self.size_here.observe(size) for size in (1, 2, 3)]")
    say(client, "self.level_here.set(8)")
    say(client, "self.level_here.increment(-3)")
    assert say(client, "self.asked_here.value(), self.level_here.value()") == "(1500.0, 5.0)"
    assert families(server) == {
        "asked": (
            "counter",
            'Questions "of all"',
            [Sample("asked_total", {"model": "counted", "what": 'a "b"'}, 1500.0)],
        ),
        "level": ("gauge", "How high", [Sample("level", {}, 5.0)]),
        "size": (
            "histogram",
            "Bytes",
            [
                Sample("size_bucket", {"unit": "byte", "le": "1"}, 1.0),
                Sample("size_bucket", {"unit": "byte", "le": "2.5"}, 2.0),
                Sample("size_bucket", {"unit": "byte", "le": "+Inf"}, 3.0),
                Sample("size_sum", {"unit": "byte"}, 6.0),
                Sample("size_count", {"unit": "byte"}, 3.0),
            ],
        ),
    }


def test_instances_and_models_share_what_has_the_same_name_and_labels(
    repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "counted", models.COUNTED, models.COUNTED_CONFIG + "instance_group { count: 2 }")
    models.write(repository, "other", models.COUNTED, models.COUNTED_CONFIG)
    server = start_server(repository)
    client = client_of(server)
    for _ in range(10):
        say(client, "self.asked_here.increment(1)")
    say(client, "self.asked_here.increment(1)", "other")
    assert [*values(server, "asked").values()] == [11]


def test_what_a_model_deletes_is_not_shown_any_more(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "counted", models.COUNTED, models.COUNTED_CONFIG)
    server = start_server(repository)
    client = client_of(server)
    say(client, "self.level_here.set(8)")
    say(client, "delattr(self, 'level_here')")
    # the family has it
    assert say(client, "self.level.Metric(labels={}).value()") == "8.0"
    say(client, "delattr(self, 'level')")
    made = "pb_utils.MetricFamily('level', 'Something else', pb_utils.MetricFamily.COUNTER)"
    say(client, f"setattr(self, 'level', {made})")
    say(client, "setattr(self, 'level_here', self.level.Metric(labels={}))")
    assert families(server)["level"] == ("counter", "Something else", [Sample("level_total", {}, 0.0)])


def test_counters_go_on_when_a_process_is_started_again(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "counted", models.COUNTED, models.COUNTED_CONFIG)
    server = start_server(repository)
    client = client_of(server)
    for life in range(1, 4):
        say(client, "self.asked_here.increment(1)")
        say(client, "self.size_here.observe(2)")
        assert say(client, "self.level_here.increment(1) or self.level_here.value()") == "1.0"
        assert [*values(server, "asked").values()] == [life]
        with pytest.raises(InferenceServerException, match="exited with code 1"):
            say(client, "self.asked_here.increment(0) or os._exit(1)")
        assert say(client, "self.asked_here.value()") == f"{life}.0"
    assert values(server, "size")["size_count{'unit': 'byte'}"] == 3


def test_metrics_go_with_their_model(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "counted", models.COUNTED, models.COUNTED_CONFIG)
    server = start_server(repository, "--model-control-mode=explicit", "--load-model=counted")
    client = client_of(server)
    say(client, "self.asked_here.increment(1)")
    # a reload goes on where the version before it was
    client.load_model("counted")
    assert say(client, "self.asked_here.value()") == "1.0"
    client.unload_model("counted")
    client.load_model("counted")
    assert say(client, "self.asked_here.value()") == "0.0"


REFUSED = ": Failed to process the request for model 'counted_0', message: "
NO_FAMILY = f"Error when creating MetricFamily{REFUSED}"
NO_METRIC = f"Error when creating Metric{REFUSED}"


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("pb_utils.MetricFamily('a-b', 'd', pb_utils.MetricFamily.GAUGE)", f"{NO_FAMILY}Invalid metric name"),
        (
            "pb_utils.MetricFamily('level', 'd', pb_utils.MetricFamily.COUNTER)",
            f"{NO_FAMILY}metric family 'level' is a gauge and cannot be a counter as well",
        ),
        (
            "pb_utils.MetricFamily('nv_inference_count', 'd', pb_utils.MetricFamily.COUNTER)",
            f"{NO_FAMILY}metric family 'nv_inference_count' has the name of a metric of the server",
        ),
        ("self.level.Metric(labels={'__a': 'b'})", f"{NO_METRIC}Invalid label name"),
        (
            "self.level.Metric(labels={'a': 'b' * 2000})",
            f"{NO_METRIC}'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb…' of a metric has 2000 bytes, at most 1024 are possible",
        ),
        (
            "self.asked_here.set(1)",
            f"Failed to set metric value{REFUSED}TRITONSERVER_METRIC_KIND_COUNTER does not support Set",
        ),
        (
            "self.asked_here.increment(-1)",
            f"Failed to increment metric value{REFUSED}TRITONSERVER_METRIC_KIND_COUNTER can only be incremented",
        ),
        (
            "self.size_here.value()",
            f"Failed to get metric value{REFUSED}TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value",
        ),
        (
            "self.size.Metric(labels={'unit': 'byte'}, buckets=[1])",
            f"{NO_METRIC}a metric of 'size' with these labels has the buckets [1.0, 2.5], got [1.0]",
        ),
        (
            "[self.level.Metric(labels={'n': str(n)}) for n in range(1001)]",
            f"{NO_METRIC}model 'counted' has 1000 metrics, which is the most",
        ),
    ],
)
def test_what_cannot_be_a_metric_is_refused(what: str, text: str, repository: Path, start_server: StartServer) -> None:
    models.write(repository, "counted", models.COUNTED, models.COUNTED_CONFIG)
    client = client_of(start_server(repository))
    assert say(client, what).startswith(text)
    assert say(client, "self.asked_here.value()") == "0.0"
