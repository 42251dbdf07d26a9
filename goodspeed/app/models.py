"""Lists the embedded models with their sizes, or prints a model's folder."""

import argparse
import json
import math
import struct
from dataclasses import asdict, dataclass
from pathlib import Path

from goodspeed.embedded import models
from goodspeed.errors import CheckpointError
from goodspeed.serving.events import print_json

NAME = "models"
HELP = "list the embedded models, or print the folder of one"
EXAMPLE = "goodspeed models path tiny-target"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(show=show_list, json=False)
    chosen = parser.add_subparsers(title="commands", metavar="COMMAND")
    parser.usage = "%(prog)s [-h] [COMMAND ...]"  # set late: the subcommands' usage begins with it
    listing = chosen.add_parser("list", help="names, sizes and roles; so does `goodspeed models` alone")
    listing.add_argument("--json", action="store_true", help="one JSON object (default: off)")
    listing.set_defaults(show=show_list)
    path = chosen.add_parser("path", help="the checkpoint folder of one model")
    path.add_argument("name", metavar="NAME", help=", ".join(models.NAMES))
    path.set_defaults(show=show_path)


def run(namespace: argparse.Namespace) -> int:
    namespace.show(namespace)
    return 0


def show_path(namespace: argparse.Namespace) -> None:
    print(find(namespace.name))


def show_list(namespace: argparse.Namespace) -> None:
    sizes = [measure(name) for name in models.NAMES]
    if namespace.json:
        print_json({"models": [asdict(size) for size in sizes]})
        return
    for size in sizes:
        sizes_in_words = f"{size.num_parameters / 1e6:6.2f}M parameters {size.num_bytes / 1e6:6.1f} MB"
        print(f"{size.name:<14} {sizes_in_words}  {size.role}")


def find(name: str) -> Path:
    """Returns the folder of an embedded model; CheckpointError for any other name."""
    folder = models.path(name)
    if not (folder / "model.safetensors").is_file():
        raise CheckpointError(f"{folder} holds no model.safetensors; install the package again, or check it out whole")
    return folder


@dataclass(frozen=True)
class Size:
    """An embedded model's size, folder and purpose."""

    name: str
    role: str
    path: str
    num_parameters: int
    num_bytes: int  # of all files


def measure(name: str) -> Size:
    folder = find(name)
    num_bytes = sum(file.stat().st_size for file in folder.iterdir())
    return Size(name, models.ROLES[name], str(folder), num_parameters(folder / "model.safetensors"), num_bytes)


def num_parameters(weights: Path) -> int:
    """Counts a safetensors file's parameters from its header: 8 bytes of length, then JSON with tensor shapes."""
    with weights.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")
