"""What Prometheus scrapes and Grafana shows is there: services, files, and every metric of the dashboard."""

import itertools
import json
import re
from pathlib import Path

import pytest
import yaml

from lab.cli.metrics_index import rows

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "observability"
SERVICES = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
DASHBOARD = json.loads((FOLDER / "grafana/dashboards/keplab.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
FUNCTIONS = {"sum", "rate", "histogram_quantile", "topk", "by", "le"}
SETTINGS = dict(
    line.split("=", 1) for line in (ROOT / "deploy/observability.env").read_text().splitlines() if line[:1].isupper()
)


def served():
    """Return every name of a sample, with its labels."""
    found = {}
    for row in rows():
        parts = ("_bucket", "_sum", "_count") if row.type == "histogram" else ("",)
        for part in parts:
            found.setdefault(row.name + part, set()).update(row.labels, {"job", "instance"})
            if part == "_bucket":
                found[row.name + part].add("le")
    return found


def metrics_of(expression):
    plain = re.sub(r"\{[^}]*\}|\[[^]]*\]|by \([^)]*\)", " ", expression)
    return [name for name in re.findall(r"[a-z_][a-z0-9_]*", plain) if name not in FUNCTIONS]


def labels_of(expression):
    grouped = itertools.chain.from_iterable(found.split(",") for found in re.findall(r"by \(([^)]*)\)", expression))
    chosen = re.findall(r"[{,]\s*(\w+)\s*=", expression)
    return {name.strip() for name in (*grouped, *chosen)}


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_every_metric_and_label_of_a_panel_is_one_that_a_component_serves(panel):
    known = served()
    for target in panel["targets"]:
        names = metrics_of(target["expr"])
        assert names, target
        for name in names:
            assert name in known, target
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert labels_of(target["expr"]) | shown <= known[name], target
        if " by (" in target["expr"]:
            assert shown <= labels_of(target["expr"]), target


def test_a_name_that_is_not_served_is_seen():
    assert ["scheduler_pending_podz"] == [
        name for name in metrics_of('sum by (queue) (scheduler_pending_podz{queue="active"})') if name not in served()
    ]


def test_panels_have_a_title_a_sentence_and_places_that_do_not_overlap():
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
    assert all(panel["title"] and panel["description"].endswith(".") for panel in PANELS)
    assert len(PANELS) == len({panel["title"] for panel in PANELS})
    assert len(DASHBOARD["panels"]) == len({panel["id"] for panel in DASHBOARD["panels"]})


def test_every_component_is_scraped_where_it_serves_its_metrics():
    jobs = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    names = {job["job_name"]: job["dns_sd_configs"][0]["names"] for job in jobs}
    components = {name for name, each in SERVICES.items() if (each.get("command") or [""])[0] == "component"} - {
        "setup"
    }

    assert components == {name for found in names.values() for name in found}
    for job in jobs:
        assert 8081 == job["dns_sd_configs"][0]["port"]
        assert "/credentials/monitor/monitor.token" == job["authorization"]["credentials_file"]
    assert "monitor-credentials:/credentials/monitor:ro" in SERVICES["prometheus"]["volumes"]
    for name in components:
        assert "0.0.0.0" == SERVICES[name]["environment"]["KEPLAB_HEALTH_HOST"], name


def test_nothing_of_it_is_in_the_way_of_the_default():
    for name in ("jaeger", "prometheus", "grafana"):
        assert ["observability"] == SERVICES[name]["profiles"]
    assert not any({"jaeger", "prometheus", "grafana"} & set(each.get("depends_on", {})) for each in SERVICES.values())
    assert "${OTEL_EXPORTER_OTLP_ENDPOINT:-}" == SERVICES["scheduler"]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"]
    assert {"COMPOSE_PROFILES": "observability", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://jaeger:4317"} == SETTINGS


def test_files_that_are_mounted_are_there_and_what_is_provisioned_has_a_source():
    for name in ("prometheus", "grafana"):
        for source in (text.split(":")[0] for text in SERVICES[name]["volumes"]):
            assert not source.startswith("./") or (ROOT / source).exists(), source
    sources = yaml.safe_load((FOLDER / "grafana/datasources/keplab.yaml").read_text())["datasources"]
    assert {"http://prometheus:9090", "http://jaeger:16686"} == {each["url"] for each in sources}
    assert {each["uid"] for each in sources} >= {panel["datasource"]["uid"] for panel in PANELS}
