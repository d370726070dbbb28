"""The metrics page as read by Prometheus's own parser."""

import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.observe.metric_types import GaugeMetric
from gateway.observe.metrics import Metrics
from gateway.observe.prometheus import PrometheusPage
from sessions.changes import EndTurn, StartAttempt, StartTurn
from sessions.records import TurnState
from sessions.values.address import Address


def read(page: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_histogram_buckets_are_cumulative() -> None:
    ledger = Metrics()
    for seconds in (0.2, 0.3, 3, 5000):
        ledger.turn_seconds.observe(seconds, "slack")
    found = read(PrometheusPage(ledger).render([]))
    name = "holdfast_turn_seconds"

    def up_to(bound: str) -> float:
        return found[f"{name}_bucket", (("le", bound), ("platform", "slack"))]

    assert [up_to(each) for each in ("0.25", "0.5", "2.0", "5.0", "1800.0", "+Inf")] == [
        1, 2, 2, 3, 3, 4,
    ]  # fmt: skip
    assert found[f"{name}_count", (("platform", "slack"),)] == 4
    assert found[f"{name}_sum", (("platform", "slack"),)] == pytest.approx(5003.5)


def test_counters_and_gauges_have_labels() -> None:
    ledger = Metrics()
    ledger.on_applied(
        (
            StartTurn(
                id="t",
                session_id="s",
                key="discord:1",
                address=Address("discord", "1"),
                inbox=(),
                messages=(),
                request="",
                at=0,
            ),
        )
    )
    ledger.on_applied((EndTurn("t", TurnState.FAILED, 1_000),))
    level = GaugeMetric("holdfast_things", "Things.", "kind")
    found = read(PrometheusPage(ledger).render([(level, {("a",): 2.0, ("b",): 0.0})]))
    assert found["holdfast_turns_total", (("platform", "discord"), ("state", "failed"))] == 1
    assert found["holdfast_things", (("kind", "a"),)] == 2
    assert found["holdfast_things", (("kind", "b"),)] == 0


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "ü{}=,#", "\ud800"])
def test_any_model_name_is_a_valid_label(name: str) -> None:
    ledger = Metrics()
    ledger.on_applied((StartAttempt("t", 1, name, 0),))
    ledger.model_requests.add(ledger._model_label(name), "complete")
    ledger.model_requests.add("next", "complete")
    found = read(PrometheusPage(ledger).render([]))
    assert found["holdfast_model_requests_total", (("model", "next"), ("verdict", "complete"))]
    assert len([key for key in found if key[0] == "holdfast_model_requests_total"]) == 2


def test_page_contains_process_metrics() -> None:
    found = read(PrometheusPage(Metrics()).render([]))
    assert found["holdfast_process_resident_memory_bytes", ()] > 1_000_000
    assert found["holdfast_process_open_fds", ()] > 2


@pytest.mark.process
def test_prometheus_library_is_not_imported_at_the_start() -> None:
    code = "import sys, gateway.runner; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
