"""Makes a larger copy of a model that writes the same texts, to try speculative decoding at that size.

A forward pass of an embedded model takes mostly overhead, because its weights are so small. The padded copy computes
the same function, and takes as long as a model of its size.
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
    parser.add_argument("--hidden", type=int, metavar="N", help="hidden size (default: that of --like)")
    parser.add_argument("--intermediate", type=int, metavar="N", help="width of the MLP (default: that of --like)")
    parser.add_argument("--layers", type=int, metavar="N", help="number of layers (default: that of --like)")


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
