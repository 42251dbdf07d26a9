"""Nodes are started with options that they have, asked where they serve, and given the time that they need to end."""

import re
from pathlib import Path

import pytest
import yaml

from draft_node.config import DraftConfig
from goodspeed.fleet import table
from tests.house.deployment.files import COMPOSE, DOCKER, commands, compose_nodes, manifests, pods, port, settings

COMMANDS = commands()


def test_every_place_that_starts_nodes_is_known() -> None:
    places = {where.partition(" ")[0] for where, _, _ in COMMANDS}
    assert places == {
        "compose.yaml",
        "compose.gpu.yaml",
        *(f"{folder}/{node}.yaml" for folder in ("cpu", "gpu") for node in ("draft", "verify")),
        "fleet/verify.yaml",
        "goodspeed-draft.service",
        "goodspeed-verify.service",
        "DEPLOYMENT.md",
    }


@pytest.mark.parametrize(("where", "node", "arguments"), COMMANDS)
def test_a_node_takes_the_options_it_is_started_with(where: str, node: str, arguments: list[str]) -> None:
    config = settings(node, arguments)
    assert config.trusted_network or config.key, "an address beyond loopback is refused without either"
    assert config.http is not None
    assert config.api_key is not None


def test_an_option_that_no_node_has_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in ("--drain-timeout=30", "--colour=red"):  # the first is the beginning of one that there is
        with pytest.raises(SystemExit):
            settings("draft", ["--model=tiny-draft-s", wrong])
        assert f"unknown option {wrong.partition('=')[0]}" in capsys.readouterr().err


@pytest.mark.parametrize("file", ["compose.yaml", "compose.gpu.yaml"])
def test_a_model_a_folder_of_models_and_more_options_are_variables(file: str) -> None:
    services = yaml.safe_load((DOCKER / file).read_text())["services"]
    for name, model in {"verify": "TARGET", "draft-1": "DRAFT", "draft-2": "DRAFT_2"}.items():
        command = services[name]["command"]
        assert f"--model ${{{model}:-" in command
        assert f"${{{name.partition('-')[0].upper()}_OPTIONS:-}}" in command
        assert "${MODELS:-checkpoints}:/models:ro" in COMPOSE["services"][name]["volumes"]
    assert "checkpoints" in COMPOSE["volumes"]


@pytest.mark.parametrize("name", compose_nodes())
def test_health_is_asked_where_it_is_served(name: str) -> None:
    node = name.partition("-")[0]
    served = port(node, compose_nodes()[name])
    image = (DOCKER / f"{node}.Dockerfile").read_text()
    assert f"http://127.0.0.1:{served}/health" in image
    assert re.search(rf"^EXPOSE {served}\b", image, re.MULTILINE)
    assert f"http://127.0.0.1:{served}/ready" in COMPOSE["services"][name]["healthcheck"]["test"][-1]
    assert COMPOSE["services"][name]["ports"][0].endswith(f":{served}")


def test_probes_ask_the_port_that_is_served() -> None:
    whole = [(name, node, container) for name, node, container, _ in pods() if "ports" in container]  # else a patch
    assert len(whole) == 3
    for name, node, container in whole:
        ports = {entry["name"]: entry["containerPort"] for entry in container["ports"]}
        assert ports["http"] == port(node, container["args"]), name
        probes = [container[probe]["httpGet"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")]
        assert {probe["port"] for probe in probes} == {"http"}
        assert [probe["path"] for probe in probes[1:]] == ["/ready", "/health"]


def test_a_draft_node_is_given_longer_to_end_than_its_texts() -> None:
    for where, node, arguments in COMMANDS:
        config = settings(node, arguments)
        assert not isinstance(config, DraftConfig) or config.drain_timeout_s == 30, where
    for name in compose_nodes():
        assert COMPOSE["services"][name]["stop_grace_period"] == "45s"
    assert "\nTimeoutStopSec=45\n" in (DOCKER / "systemd/goodspeed-draft.service").read_text()
    graces = [
        pod["terminationGracePeriodSeconds"] - int(container["lifecycle"]["preStop"]["exec"]["command"][1])
        for _, _, container, pod in pods()
        if "lifecycle" in container
    ]
    assert graces == [55]


def test_http_is_published_on_loopback_and_the_wire_never() -> None:
    assert COMPOSE["networks"]["wire"]["internal"]
    for name, service in COMPOSE["services"].items():
        assert all(re.fullmatch(r"127\.0\.0\.1:\d+:(?!5555$)\d+", ports) for ports in service["ports"]), name
        assert name in compose_nodes() or "wire" not in service["networks"]


def test_no_service_of_kubernetes_is_called_goodspeed() -> None:
    """Every pod would be given variables GOODSPEED_*."""
    services = [document["metadata"]["name"] for _, document in manifests() if document["kind"] == "Service"]
    assert sorted(services) == ["draft", "verify"]


def test_every_image_of_kubernetes_has_a_tag_beside_it() -> None:
    """`images` of a kustomization reaches only its own resources and those of its bases."""
    named = [(name.partition("/")[0], container["image"]) for name, _, container, _ in pods() if "image" in container]
    assert len(named) == 3
    tags = set()
    for folder, image in named:
        images = yaml.safe_load((DOCKER / "kubernetes" / folder / "kustomization.yaml").read_text())["images"]
        tags |= {entry["newTag"] for entry in images}
        assert image in [entry["name"] for entry in images], folder
    assert len(tags) == 1


def test_the_fleet_of_kubernetes_has_the_replicas_that_it_names() -> None:
    found = next(document for name, document in manifests() if document["kind"] == "StatefulSet")
    name, number = found["metadata"]["name"], found["spec"]["replicas"]
    peers = table.read(DOCKER / "kubernetes/fleet/peers.json").replicas
    assert [replica.name for replica in peers] == [f"{name}-{index}" for index in range(number)]
    host = found["spec"]["serviceName"]
    assert [replica.endpoint for replica in peers] == [f"tcp://{one.name}.{host}:5555" for one in peers]


@pytest.mark.parametrize("path", sorted(DOCKER.rglob("*.yaml")), ids=lambda path: path.name)
def test_yaml_can_be_read(path: Path) -> None:
    assert all(yaml.safe_load_all(path.read_text()))
