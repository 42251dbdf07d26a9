"""Answers eight questions at once on this machine, with drafts and by the target alone, and compares the two."""

import argparse

from goodspeed.app.demo.options import DemoConfig, clients
from goodspeed.serving.config import add_options, from_namespace
from goodspeed.serving.events import print_json
from goodspeed.serving.running import add_common_options

NAME = "demo"
HELP = "a verify node and draft nodes answer questions together on this machine"
EXAMPLE = "goodspeed demo --clients 4 --temperature 0.7 --seed 1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, DemoConfig)
    add_common_options(parser)


def run(namespace: argparse.Namespace) -> int:
    config = from_namespace(DemoConfig, namespace)
    config.check()
    asking = clients(config)
    # Imported after the options are checked: rich, an HTTP client and version lookups are slow to import.
    from goodspeed.app.demo import summary, view
    from goodspeed.app.demo.answers import Run
    from goodspeed.app.demo.processes import run_interruptible
    from goodspeed.app.demo.run import run as run_nodes

    watcher = view.View()

    def tell(runs: list[Run]) -> None:
        result = summary.summarize(config, runs)
        watcher.show(runs[0].answers)
        if namespace.json:
            print_json(result)
        else:
            print(summary.to_text(result), flush=True)

    run_interruptible(run_nodes(config, asking, watcher, namespace.log_level, tell))
    return 0
