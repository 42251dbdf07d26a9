"""Reads docker/: every node that anything there starts, with its arguments. Needs no Docker."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import draft_node.cli
import verify_node.cli
from draft_node.config import DraftConfig
from goodspeed.serving.config import from_namespace
from verify_node.config import VerifyConfig

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "docker"
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
KEYS = yaml.safe_load((DOCKER / "compose.keys.yaml").read_text())
NODES = {"draft": (draft_node.cli.build_parser, DraftConfig), "verify": (verify_node.cli.build_parser, VerifyConfig)}
EXAMPLES = {  # what stands for values that are known only where a node runs
    "%H": "edge-1",
    "$(POD_NAME)": "draft-7d4f-x",
    "${VERIFY}": "tcp://verify.internal:5555",
    "${DEVICE}": "cuda",
}
ADDRESS = "192.0.2.1"  # what stands for a variable that has to be set, an address


def settings(node: str, arguments: list[str]) -> DraftConfig | VerifyConfig:
    """Returns what the node makes of a command line; options must be spelled out."""
    build_parser, config = NODES[node]
    parser = build_parser()
    parser.allow_abbrev = False
    return from_namespace(config, parser.parse_args(arguments))


def port(node: str, arguments: list[str]) -> int:
    """The port of the node's HTTP face."""
    return int((settings(node, arguments).http or "").rpartition(":")[2])


class ComposeNode(NamedTuple):
    """A service of a compose file that is a node."""

    node: str
    arguments: list[str]
    profiles: list[str]
    service: dict[str, Any]

    @property
    def port(self) -> int:
        return port(self.node, self.arguments)


def compose_nodes(profile: str = "", *, keys: bool = False) -> dict[str, ComposeNode]:
    """Nodes of a profile, or of all, by service. keys: as compose.keys.yaml has them; others are left out."""
    found = {}
    for name, service in COMPOSE["services"].items():
        whole = service | KEYS["services"].get(name, {}) if keys else service
        started = re.match(r"python3 -m (draft|verify)_node (.*)", whole.get("entrypoint", ""), re.DOTALL)
        if started and profile in ("", *service["profiles"]) and (not keys or name in KEYS["services"]):
            node, options = started.groups()
            found[name] = ComposeNode(node, _split(f"{options} {whole['command']}"), service["profiles"], whole)
    return found


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
    for file, keys in (("compose.yaml", False), ("compose.keys.yaml", True)):
        found += [(f"{file} {name}", one.node, one.arguments) for name, one in compose_nodes(keys=keys).items()]
    found += [(name, node, _split(" ".join(container["args"]))) for name, node, container, _ in pods()]
    units = sorted((DOCKER / "systemd").glob("*.service"))
    for path in (*units, ROOT / "docs/DEPLOYMENT.md"):
        for node, words in re.findall(r"goodspeed-(draft|verify) (--.*)", path.read_text().replace("\\\n", " ")):
            found.append((path.name, node, _split(words)))
    return found


def with_defaults(text: str) -> str:
    """Returns a text of a compose file as it is where only those variables are set that have to be."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", re.sub(r"\$\{\w+:\?[^}]*\}", ADDRESS, text))


def _split(command: str) -> list[str]:
    command = with_defaults(command)
    for name, example in EXAMPLES.items():
        command = command.replace(name, example)
    return shlex.split(command)
