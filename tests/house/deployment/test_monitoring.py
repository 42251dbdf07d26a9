"""Prometheus asks the nodes where they serve, and the dashboard shows metrics that there are."""

import json
import re

import yaml

from tests.house.deployment.files import DOCKER, ROOT, compose_nodes, port

JOBS = yaml.safe_load((DOCKER / "prometheus.yaml").read_text())["scrape_configs"]


def test_prometheus_asks_every_node_where_it_serves() -> None:
    asked = {target for job in JOBS for config in job["static_configs"] for target in config["targets"]}
    assert asked == {f"{name}:{port(name.partition('-')[0], words)}" for name, words in compose_nodes().items()}


def test_the_dashboard_shows_metrics_that_there_are() -> None:
    rows = re.findall(r"^\| `(\w+)` \| \w+ \|([^|]*)\|", (ROOT / "docs/METRICS.md").read_text(), re.MULTILINE)
    labels = {name: {label.strip() for label in names.split(",")} for name, names in rows}
    panels = json.loads((DOCKER / "grafana/dashboards/goodspeed.json").read_text())["panels"]
    sources = yaml.safe_load((DOCKER / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    shown = [(panel, target) for panel in panels for target in panel.get("targets", [])]
    assert len(shown) > 30
    for panel, target in shown:
        query = target["expr"]
        names = {name.removesuffix("_bucket") for name in re.findall(r"goodspeed_\w+", query)}
        assert names, panel["title"]
        assert names <= labels.keys(), panel["title"]
        assert set(re.findall(r'job="([^"]*)"', query)) <= {job["job_name"] for job in JOBS}
        told_apart = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) - {"instance"}
        assert told_apart <= set().union(*(labels[name] for name in names)), panel["title"]
        assert panel["datasource"]["uid"] == sources[0]["uid"]
