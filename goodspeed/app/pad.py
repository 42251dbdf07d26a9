"""Pads a model to the size of a larger one that writes the same texts, to see what speculative decoding brings there.

An embedded model is so small that overhead, and not its weights, is what a forward pass costs. The padded copy computes
the same function, and costs what a model of its size costs.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from goodspeed.serving.events import Reporter

NAME = "pad"
HELP = "make a larger copy of a model that writes the same texts"
EXAMPLE = "goodspeed pad tiny-target --like 116m padded"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="an embedded name, a folder or a hub name; Llama, Mistral, Qwen")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="where the copy goes; must not exist")
    parser.add_argument(
        "--like", default="116m", choices=("116m", "1b", "8b", "14b"), help="size to pad it to (default: 116m)"
    )
    for name, what in (("hidden", "hidden size"), ("intermediate", "width of the MLP"), ("layers", "number of layers")):
        parser.add_argument(f"--{name}", type=int, metavar="N", help=f"{what} (default: that of --like)")


def run(namespace: argparse.Namespace) -> int:
    from goodspeed.engine import padding  # late: it imports torch

    like = padding.LIKE[namespace.like]
    shape = replace(
        like,
        hidden=namespace.hidden or like.hidden,
        intermediate=namespace.intermediate or like.intermediate,
        layers=namespace.layers or like.layers,
    )
    if namespace.hidden:
        shape = replace(shape, queries=namespace.hidden, keys=namespace.hidden * like.keys // like.queries)
    reporter = Reporter("goodspeed")
    num_parameters = padding.pad(namespace.model, shape, namespace.folder, reporter.say)
    print(f"{namespace.folder}: {num_parameters / 1e6:,.0f}M parameters; its texts are those of {namespace.model}")
    return 0
