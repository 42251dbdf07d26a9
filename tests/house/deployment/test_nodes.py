"""Nodes are started with options that they have, asked where they serve, and given the time that they need to end."""

import os
import re
import shutil
import subprocess

import pytest
import yaml

from draft_node.config import DraftConfig
from draft_node.http.server import DRAIN_S
from experiments.simulation.paper import TABLE_1
from goodspeed.fleet import table
from tests.house.deployment import files as found
from tests.house.deployment.files import ADDRESS, DOCKER, KEYS, ROOT, compose_nodes, manifests, pods, settings

COMMANDS = found.commands()
PROFILES = {"smollm2", "verify", "drafts", "qwen3-4", "qwen3-8", "llama3-8"}  # of nodes
COMPOSES = (("docker", "compose"), ("docker-compose",))


def test_every_place_that_starts_nodes_is_known() -> None:
    places = {where.partition(" ")[0] for where, _, _ in COMMANDS}
    of_nodes = ("cpu/{}.yaml", "gpu/{}.yaml", "goodspeed-{}.service")
    known = {place.format(node) for place in of_nodes for node in ("draft", "verify")}
    assert places == known | {"compose.yaml", "compose.keys.yaml", "fleet/verify.yaml", "DEPLOYMENT.md"}


@pytest.mark.parametrize(("where", "node", "arguments"), COMMANDS)
def test_a_node_takes_the_options_it_is_started_with(where: str, node: str, arguments: list[str]) -> None:
    config = settings(node, arguments)
    assert config.trusted_network or config.key, "an address beyond loopback is refused without either"
    assert config.http is not None
    assert config.api_key is not None


def test_one_verify_node_and_eight_draft_nodes_have_the_real_model() -> None:
    verify, *drafts = compose_nodes("smollm2").values()
    assert (verify.node, [one.node for one in drafts]) == ("verify", ["draft"] * 8)
    assert settings("verify", verify.arguments).model == "smollm2"
    configs = [settings("draft", one.arguments) for one in drafts]
    assert {one.model for one in configs} == {"smollm2-draft"}
    domains = sorted(path.stem for path in (ROOT / "experiments/prompts").glob("*.jsonl"))
    assert sorted(str(one.name) for one in configs if isinstance(one, DraftConfig)) == domains
    assert set(compose_nodes("verify")) | set(compose_nodes("drafts")) == set(compose_nodes("smollm2"))


@pytest.mark.parametrize(("profile", "rows"), [("qwen3-4", (0, 1)), ("qwen3-8", (2, 3)), ("llama3-8", (4, 5))])
def test_rows_of_table_1_are_profiles(profile: str, rows: tuple[int, int]) -> None:
    first, second = (TABLE_1[row] for row in rows)
    verify, *drafts = compose_nodes(profile).values()
    assert (verify.node, {one.node for one in drafts}, len(drafts)) == ("verify", {"draft"}, first.num_clients)
    size = rf"{first.num_clients} draft nodes, {first.max_tokens} tokens"
    said = rf"^#   {profile} .*{size}: C = {first.budget}, or BUDGET={second.budget}$"
    assert re.search(said, (DOCKER / "compose.yaml").read_text(), re.MULTILINE)
    assert "--budget ${BUDGET:-" + str(first.budget) + "}" in verify.service["command"]
    by_place = {one.service["ports"][0]: settings("draft", one.arguments).model for one in drafts}
    models = [model for _, model in sorted(by_place.items())]
    assert len(set(models)) == len(first.models)
    assert models == [models[place % len(first.models)] for place in range(first.num_clients)]
    family = profile.partition("-")[0].replace("qwen3", "Qwen3").replace("llama3", "Llama-3")
    assert all(family in model for model in (*models, settings("verify", verify.arguments).model))
    assert sum(one.arguments.count("--memory-fraction") for one in drafts) == len(drafts)


def test_a_profile_has_each_name_and_port_once() -> None:
    nodes = compose_nodes().values()
    assert {profile for one in nodes for profile in one.profiles} == PROFILES
    for profile in PROFILES:
        own = compose_nodes(profile).values()
        ports = [one.service["ports"][0] for one in own]
        names = [name for one in own for name in one.service["networks"]["faces"]["aliases"]]
        assert len(set(ports)) == len(set(names)) == len(own), profile


@pytest.mark.parametrize("name", compose_nodes())
def test_health_is_asked_where_it_is_served(name: str) -> None:
    one = compose_nodes()[name]
    image = (DOCKER / f"{one.node}.Dockerfile").read_text()
    assert f"http://127.0.0.1:{one.port}/health" in image
    assert re.search(rf"^EXPOSE {one.port}\b", image, re.MULTILINE)
    assert f"http://127.0.0.1:{one.port}/ready" in one.service["healthcheck"]["test"][-1]
    assert one.service["ports"][0].endswith(f":{one.port}")


def test_probes_ask_the_port_that_is_served() -> None:
    whole = [(name, node, container) for name, node, container, _ in pods() if "ports" in container]  # else a patch
    assert len(whole) == 3
    for name, node, container in whole:
        ports = {entry["name"]: entry["containerPort"] for entry in container["ports"]}
        assert ports["http"] == found.port(node, container["args"]), name
        probes = [container[probe]["httpGet"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")]
        assert {probe["port"] for probe in probes} == {"http"}
        assert [probe["path"] for probe in probes[1:]] == ["/ready", "/health"]


def test_a_draft_node_is_given_longer_to_end_than_its_texts() -> None:
    assert DRAIN_S == 30.0
    for one in compose_nodes().values():
        assert one.service["stop_grace_period"] == "45s"
    assert "\nTimeoutStopSec=45\n" in (DOCKER / "systemd/goodspeed-draft.service").read_text()
    graces = [
        pod["terminationGracePeriodSeconds"] - int(container["lifecycle"]["preStop"]["exec"]["command"][1])
        for _, _, container, pod in pods()
        if "lifecycle" in container
    ]
    assert graces == [55]


def test_http_is_published_on_loopback_and_the_wire_never() -> None:
    assert found.COMPOSE["networks"]["wire"]["internal"]
    for name, service in found.COMPOSE["services"].items():
        assert all(re.fullmatch(r"127\.0\.0\.1:\d+:(?!5555$)\d+", ports) for ports in service["ports"]), name
        assert name in compose_nodes() or "wire" not in service["networks"]


def test_the_wire_is_published_only_where_it_has_keys_and_an_address_is_given() -> None:
    nodes = compose_nodes(keys=True)
    assert nodes.keys() == KEYS["services"].keys() == compose_nodes("smollm2").keys()
    assert KEYS.keys() == {"x-keyed", "services", "secrets"}  # networks are those of compose.yaml
    for name, one in nodes.items():
        config = settings(one.node, one.arguments)
        assert config.key, name
        assert not config.trusted_network, name
        mounted = {f"/run/secrets/{part_of(secret, 'target')}" for secret in one.service["secrets"]}
        published = KEYS["services"][name].get("ports", [])
        if isinstance(config, DraftConfig):
            assert {config.key, config.verify_key} == mounted
            assert {"source": f"{config.name}.key", "target": "draft.key"} in one.service["secrets"]
            assert list(config.verify) == [f"tcp://{ADDRESS}:5555"]
            assert published == []
        else:
            assert {config.key} == mounted
            assert config.enrolled is not None
            assert any(volume.split(":")[1:] == [config.enrolled, "ro"] for volume in one.service["volumes"])
            assert published == ["${VERIFY_ADDRESS:?the address of this host}:5555:5555"]
    secrets = [secret for one in nodes.values() for secret in one.service["secrets"]]
    assert {part_of(secret, "source") for secret in secrets} == KEYS["secrets"].keys()


def part_of(secret: str | dict[str, str], name: str) -> str:
    return secret if isinstance(secret, str) else secret[name]


@pytest.mark.parametrize("files", [("compose.yaml",), ("compose.yaml", "compose.keys.yaml")], ids="+".join)
def test_compose_takes_the_files(files: tuple[str, ...]) -> None:
    """Other tests look up by themselves what the files have to say."""
    compose = next((words for words in COMPOSES if _answers(words)), None)
    if compose is None:
        pytest.skip("there is neither `docker compose` nor docker-compose")
    named = [word for file in files for word in ("-f", str(DOCKER / file))]
    profiles = [f"--profile={profile}" for profile in sorted(PROFILES)]
    words = [*compose, "-p", "goodspeed", *named, *profiles, "config", "--quiet"]
    done = subprocess.run(words, env=os.environ | {"VERIFY_ADDRESS": ADDRESS}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _answers(words: tuple[str, ...]) -> bool:
    return bool(shutil.which(words[0])) and subprocess.run([*words, "version"], capture_output=True).returncode == 0


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
    fleet = next(document for name, document in manifests() if document["kind"] == "StatefulSet")
    name, number = fleet["metadata"]["name"], fleet["spec"]["replicas"]
    peers = table.read(DOCKER / "kubernetes/fleet/peers.json").replicas
    assert [replica.name for replica in peers] == [f"{name}-{index}" for index in range(number)]
    host = fleet["spec"]["serviceName"]
    assert [replica.endpoint for replica in peers] == [f"tcp://{one.name}.{host}:5555" for one in peers]
