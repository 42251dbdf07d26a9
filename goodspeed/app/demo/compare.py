"""Runs the same prompts and seeds under several policies, and compares the results."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from goodspeed.app.demo import summary, words
from goodspeed.app.demo.options import Client, DemoConfig
from goodspeed.app.demo.run import run
from goodspeed.app.demo.state import DemoState
from goodspeed.app.demo.view import View

POLICIES = ("gradient", "fixed", "random")


def policies(config: DemoConfig) -> list[str]:
    """Returns the policies that are compared: three, and the one that was asked for."""
    return list(dict.fromkeys((*POLICIES, config.policy)))


async def run_all(config: DemoConfig, clients: list[Client], view: View, log_level: str) -> dict[str, DemoState]:
    """Runs the demo once for each policy, with new processes each time."""
    states: dict[str, DemoState] = {}
    compared = policies(config)
    for number, policy in enumerate(compared, 1):
        view.say(f"run {number} of {len(compared)}: the {policy} policy")
        states[policy] = await run(replace(config, policy=policy), clients, view, log_level)
    return states


def summarize(config: DemoConfig, states: Mapping[str, DemoState]) -> dict[str, Any]:
    """Returns the results by policy, and whether the texts are equal, as they must be under the match rule."""
    results = {policy: summary.summarize(replace(config, policy=policy), state) for policy, state in states.items()}
    texts = [[client["token_ids"] for client in result["clients"]] for result in results.values()]
    return {"compare": results, "texts_identical": all(text == texts[0] for text in texts)}


def to_text(result: dict[str, Any]) -> str:
    """Returns a table with a column for each policy."""
    results = result["compare"]
    rows: list[tuple[str, list[str]]] = [("", list(results))]
    figures = [summary.short_figures(one) for one in results.values()]
    rows += [(name, [column[name] for column in figures]) for name in figures[0]]
    rows += [("", [])]
    for index, client in enumerate(next(iter(results.values()))["clients"]):
        label = f"goodput {client['name']} {client['domain']}"
        rows.append((label, [f"{one['clients'][index]['goodput']:.2f}" for one in results.values()]))
    rows += [("", []), ("texts identical", ["yes" if result["texts_identical"] else "no"])]
    width = max(12, *(len(policy) + 2 for policy in results))
    lines = (f"{label:<28}" + "".join(f"{cell:>{width}}" for cell in cells) for label, cells in rows)
    notes = [words.policy(one["policy"], one["cost"]) for one in results.values() if one["policy"] == "gradient"]
    return "\n".join([*(line.rstrip() for line in lines), *notes])
