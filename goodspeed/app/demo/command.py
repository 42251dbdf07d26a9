"""Starts a verify node and draft nodes as processes on this machine, shows them live, and sums up the results."""

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from goodspeed.app.demo.options import DemoConfig, clients
from goodspeed.errors import ConfigError
from goodspeed.serving.config import add_options, from_namespace, group_of
from goodspeed.serving.events import print_json
from goodspeed.serving.running import add_common_options

if TYPE_CHECKING:
    from goodspeed.app.demo.state import DemoState

NAME = "demo"
HELP = "a verify node and draft nodes write text together on this machine"
EXAMPLE = "goodspeed demo --clients 4 --preset paper --budget 16"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, DemoConfig)
    group_of(parser, "rounds and budget").add_argument(
        "--compare",
        action="store_true",
        help="run gradient, fixed and random (and --policy) and the preset paper, side by side (default: off)",
    )
    add_common_options(parser)


def run(namespace: argparse.Namespace) -> int:
    config, compares = from_namespace(DemoConfig, namespace), namespace.compare
    config.check()
    if config.record and compares:
        raise ConfigError("--record saves one run, but --compare makes several; leave one of them out")
    if config.http and compares:
        raise ConfigError("--http serves one run, but --compare makes several; leave one of them out")
    if config.preset and compares:
        raise ConfigError("--compare runs the preset paper beside the others; leave --preset out")
    roster = clients(config)
    # Imported after the options are checked: plotting and version lookups are slow to import.
    from goodspeed.app.demo import summary, view
    from goodspeed.app.demo.processes import run_interruptible
    from goodspeed.app.demo.run import run as run_once
    from goodspeed.app.demo.run import run_all

    for way in summary.ways(config).values() if compares else ():
        way.check()
    watcher = view.create()

    def say(text: str, *values: object) -> None:
        watcher.say(text % values)

    config.find_draft_models(say)
    config = config.with_target(say)
    if compares:
        states = run_interruptible(run_all(config, roster, watcher, namespace.log_level))
        result = summary.compare(config, states)
        if result["texts_identical"] is False:
            print("the texts differ between policies; under the match rule they must not", file=sys.stderr)
    else:
        state = run_interruptible(run_once(config, roster, watcher, namespace.log_level, compares=not config.http))
        states = {config.policy: state}
        result = summary.summarize(config, state)
    watcher.doing("drawing the picture")
    try:
        result["png"] = save_picture(states, config.png)
    finally:
        watcher.done()
    if namespace.json:
        print_json(result)
    else:
        print((summary.comparison_to_text if compares else summary.to_text)(result))
        print(f"{'picture':<28} {result['png']}\n\n{summary.OF_COMPARISON if compares else summary.OF_ONE_RUN}")
        if not compares and (line := summary.closing(result)):
            print(f"\n{line}")
    return 0


def save_picture(states: "Mapping[str, DemoState]", path: str) -> str | None:
    """Saves the plot; returns its path, or None (not an error) if the file cannot be written."""
    from goodspeed.app.demo import plot

    try:
        plot.save(states, path)
    except OSError as error:
        print(f"no picture: {error}", file=sys.stderr)
        return None
    return path
