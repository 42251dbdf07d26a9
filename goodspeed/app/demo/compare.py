"""Runs the same prompts and seeds under several configurations, including the paper's, and compares the results."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from goodspeed.app.demo import summary
from goodspeed.app.demo.options import Client, DemoConfig
from goodspeed.app.demo.run import run
from goodspeed.app.demo.state import DemoState
from goodspeed.app.demo.view import View
from goodspeed.serving.options import PAPER

POLICIES = ("gradient", "fixed", "random")


def ways(config: DemoConfig) -> dict[str, DemoConfig]:
    """Returns the configurations to compare: three policies, the requested policy, and the paper's preset."""
    found = {policy: replace(config, policy=policy) for policy in (*POLICIES, config.policy)}
    # without what the preset sets itself
    shared = {name: getattr(DemoConfig, name) for name in PAPER if hasattr(DemoConfig, name)}
    return found | {"paper": replace(config, policy="gradient", **shared, preset="paper")}


async def run_all(config: DemoConfig, clients: list[Client], view: View, log_level: str) -> dict[str, DemoState]:
    """Runs the demo once per configuration, with new processes each time."""
    states: dict[str, DemoState] = {}
    compared = ways(config)
    for number, (name, way) in enumerate(compared.items(), 1):
        view.say(f"run {number} of {len(compared)}: {name}")
        states[name] = await run(way, clients, view, log_level)
    return states


def summarize(config: DemoConfig, states: Mapping[str, DemoState]) -> dict[str, Any]:
    """Returns the results by configuration, and whether all texts under the match rule are equal, as they must be."""
    compared = ways(config)
    results = {name: summary.summarize(compared[name], state) for name, state in states.items()}
    matched = [result for result in results.values() if result["verification"] == "match"]
    texts = [[client["token_ids"] for client in result["clients"]] for result in matched]
    return {"compare": results, "texts_identical": all(text == texts[0] for text in texts)}


def to_text(result: dict[str, Any]) -> str:
    """Returns a table with one column per configuration."""
    results = result["compare"]
    rows: list[tuple[str, list[str]]] = [("", list(results))]
    figures = [summary.short_figures(one) for one in results.values()]
    rows += [(name, [column[name] for column in figures]) for name in figures[0]]
    rows += [("", [])]
    for index, client in enumerate(next(iter(results.values()))["clients"]):
        label = f"goodput {client['name']} {client['domain']}"
        rows.append((label, [f"{one['clients'][index]['goodput']:.2f}" for one in results.values()]))
    rows += [("", []), ("texts identical", ["yes" if result["texts_identical"] else "no"])]
    width = max(12, *(len(name) + 2 for name in results))
    lines = (f"{label:<28}" + "".join(f"{cell:>{width}}" for cell in cells) for label, cells in rows)
    return "\n".join(line.rstrip() for line in lines)
