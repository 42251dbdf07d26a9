"""Reads docker/: every node that anything there starts, with its arguments. Needs no Docker."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

import draft_node.cli
import verify_node.cli
from draft_node.config import DraftConfig
from goodspeed.serving.config import from_namespace
from verify_node.config import VerifyConfig

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "docker"
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
NODES = {"draft": (draft_node.cli.build_parser, DraftConfig), "verify": (verify_node.cli.build_parser, VerifyConfig)}
EXAMPLES = {
    "%H": "edge-1",
    "$(POD_NAME)": "draft-7d4f-x",
    "${VERIFY}": "tcp://verify.internal:5555",
    "${DEVICE}": "cuda",
}
"""What stands for values that are known only where a node runs."""


def settings(node: str, arguments: list[str]) -> DraftConfig | VerifyConfig:
    """Returns what the node makes of a command line; options must be spelled out."""
    build_parser, config = NODES[node]
    parser = build_parser()
    parser.allow_abbrev = False
    return from_namespace(config, parser.parse_args(arguments))


def port(node: str, arguments: list[str]) -> int:
    """The port of the node's HTTP face."""
    return int((settings(node, arguments).http or "").rpartition(":")[2])


def compose_nodes(path: Path = DOCKER / "compose.yaml") -> dict[str, list[str]]:
    """Services that are nodes, with their arguments."""
    services = yaml.safe_load(path.read_text())["services"]
    return {name: _split(service["command"]) for name, service in services.items() if _node(name)}


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every Kubernetes object, and the file that it stands in."""
    for path in sorted((DOCKER / "kubernetes").rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            yield f"{path.parent.name}/{path.name}", document


def pods() -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """File, node, container and pod of every deployment and stateful set, patches included."""
    for name, document in manifests():
        if document["kind"] in ("Deployment", "StatefulSet"):
            pod = document["spec"]["template"]["spec"]
            yield name, document["metadata"]["name"], pod["containers"][0], pod


def commands() -> list[tuple[str, str, list[str]]]:
    """The place, the node and the arguments of every node that is started anywhere."""
    found = []
    for path in (DOCKER / "compose.yaml", DOCKER / "compose.gpu.yaml"):
        found += [(f"{path.name} {name}", _node(name), words) for name, words in compose_nodes(path).items()]
    found += [(name, node, _split(" ".join(container["args"]))) for name, node, container, _ in pods()]
    units = sorted((DOCKER / "systemd").glob("*.service"))
    for path in (*units, ROOT / "docs/DEPLOYMENT.md"):
        for node, words in re.findall(r"goodspeed-(draft|verify) (--.*)", path.read_text().replace("\\\n", " ")):
            found.append((path.name, node, _split(words)))
    return found


def _node(name: str) -> str:
    return name.partition("-")[0] if name.startswith(tuple(NODES)) else ""


def with_defaults(text: str) -> str:
    """Returns a text of a compose file as it is where no variable is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def _split(command: str) -> list[str]:
    command = with_defaults(command)
    for name, example in EXAMPLES.items():
        command = command.replace(name, example)
    return shlex.split(command)
