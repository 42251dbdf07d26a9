"""Prometheus asks the nodes where they serve, and the dashboard shows metrics that there are."""

import json
import re

import yaml

from tests.house.deployment.files import DOCKER, ROOT, compose_nodes

JOBS = yaml.safe_load((DOCKER / "prometheus.yaml").read_text())["scrape_configs"]


def test_prometheus_asks_every_node_where_it_serves() -> None:
    """By their names on the network that it is on, whichever profile they are of."""
    asked = {target for job in JOBS for config in job["static_configs"] for target in config["targets"]}
    for profile, num in {"smollm2": 9, "qwen3-4": 5, "qwen3-8": 9, "llama3-8": 9}.items():
        nodes = compose_nodes(profile).values()
        served = {f"{name}:{one.port}" for one in nodes for name in one.service["networks"]["faces"]["aliases"]}
        assert len(served) == num
        assert served <= asked
        assert num < len(asked) or served == asked


def labels_by_metric(node: str) -> dict[str, set[str]]:
    """The metrics of a node with their labels; docs/METRICS.md is held against the nodes by other tests."""
    verify, draft = (ROOT / "docs/METRICS.md").read_text().split("## The draft node")
    text = {"verify": verify, "draft": draft, "": verify + draft}[node]
    rows = re.findall(r"^\| `(\w+)` \| \w+ \|([^|]*)\|", text, re.MULTILINE)
    return {name: {label.strip() for label in names.split(",")} for name, names in rows}


def test_alerts_ask_for_metrics_that_there_are_of_the_node_that_has_them() -> None:
    (file,) = yaml.safe_load((DOCKER / "prometheus.yaml").read_text())["rule_files"]
    mounts = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]["prometheus"]["volumes"]
    assert f"./alerts.yaml:{file}:ro" in mounts
    (group,) = yaml.safe_load((DOCKER / "alerts.yaml").read_text())["groups"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"]) >= 5
    for rule in group["rules"]:
        assert set(rule["annotations"]) == {"summary", "todo"}, rule["alert"]
        asked = re.findall(r'\b(\w+)\{job=~?"goodspeed-(verify|draft|\.\*)"(?:, (\w+)!?=)?', rule["expr"])
        assert [name for name, _, _ in asked] == re.findall(r"\b(?:goodspeed_\w+|up)\b", rule["expr"]), rule["alert"]
        known = {"up": {""}} | labels_by_metric(asked[0][1].replace(".*", ""))
        for name, _, label in asked:
            assert label in {"", *known[name.removesuffix("_bucket")]}, rule["alert"]
        used = {label for by in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in by.split(", ")}
        used |= set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        for name, _, _ in asked:
            assert used - {"instance", "le"} <= known[name.removesuffix("_bucket")], rule["alert"]


def test_the_dashboard_shows_metrics_that_there_are() -> None:
    labels = labels_by_metric("")
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
