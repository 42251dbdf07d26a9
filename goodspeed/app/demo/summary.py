"""Summarizes a run, or several that are compared: figures, JSON result and text table."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, geometric_mean
from typing import Any, get_args

from goodspeed.app.demo.options import DemoConfig
from goodspeed.app.demo.state import DemoState, Progress
from goodspeed.serving.measuring.recording import versions
from goodspeed.serving.options import PAPER
from goodspeed.wire.fields import DraftSource

POLICIES = ("gradient", "fixed", "random")

WALL = ("receive", "forward", "verify", "schedule", "send")
"""Parts of the verify node's time, as in Fig. 3 of the GoodSpeed paper."""

OF_CLIENT = (
    *("text", "token_ids", "num_tokens", "num_rounds", "num_drafted", "num_accepted", "draft_acceptance_rate"),
    *("goodput", "tokens_per_s", "finish_reason", "drafted_by", "accepted_by", "slo", "num_rounds_passed"),
)
"""Fields of `Progress` in a client's result."""

TEXT_WIDTH = 88

OF_FIGURES = """\
goodput: a client's tokens for each round from its first to its last; a round that passes while it drafts gives it none,
  so it may be below 1
log-utility: sum of ln(goodput) over the clients; it is higher when they get more tokens a round,
  and when none is left behind; rounds of the preset paper are longer: compare it with others' by that of tokens / s
Jain index: 1 when all clients have the same goodput, 1/n when one of n has everything
worst client's share: of the goodput of all; 1/n when all have the same
uplink bytes: what the draft nodes send, for each token of theirs that the target checks"""

OF_ONE_RUN = f"""\
rounds: in all; for a client those that gave it tokens, of those from its first to its last
accepted: share of a client's verified drafted tokens; those after a rejected one and beside an accepted one are not
  accepted, so that this draft acceptance rate is below the acceptance rate of Eq. (3)
{OF_FIGURES}
accepted of drafted tokens: by what drafted them: a draft model, the n-gram index of the draft node (ngram),
  or the verify node, from a text's own earlier part (self)
verify node's time: receive is waiting for drafts, forward the target's pass, verify comparing the drafts with it,
  schedule sharing out the next budget, send sending the results"""

OF_COMPARISON = f"""\
{OF_FIGURES}
gradient, fixed, random: who may draft how much; of that a round verifies what brings most tokens for its time,
  with gradient each divided by its client's goodput
paper: --preset paper, whose rounds wait for every draft and verify it whole by the ratio rule;
  its texts are others"""


def jain_index(values: Sequence[float]) -> float:
    """Returns (sum x)^2 / (n sum x^2): 1 if all are equal, 1/n if one has everything; 0 without values."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


def log_utility(values: Sequence[float]) -> float:
    """Returns the sum of log goodput over positive values: a client whose text ended without tokens was not starved."""
    return sum(math.log(value) for value in values if value > 0)


def summarize(config: DemoConfig, state: DemoState) -> dict[str, Any]:
    """Returns the result of one run, for `--json`."""
    clients = list(state.progress.values())
    goodputs = [one.goodput for one in clients if one.num_tokens]
    drafted_by = by_source(one.drafted_by for one in clients)
    num_sent = drafted_by["model"] + drafted_by["ngram"]  # without the verify node's own drafts
    return {
        "policy": config.policy,
        "rounds": config.rounds,
        "budget": config.budget,
        "num_rounds": state.num_rounds,
        "tokens_per_s": state.num_tokens / state.elapsed_s if state.elapsed_s else 0.0,
        "log_utility": log_utility(goodputs),
        "jain": jain_index(goodputs),
        "uplink_bytes_per_token": state.uplink_bytes / num_sent if num_sent else 0.0,
        "wall_s": {part: state.wall_s.get(part, 0.0) for part in WALL},
        "clients": [_client(one, config) for one in clients],
        "preset": config.preset,
        "model": config.model_name,
        "verification": config.verification,
        "log_utility_per_s": log_utility([one.tokens_per_s for one in clients]),
        "worst_share": min(goodputs) / sum(goodputs) if goodputs else 0.0,
        "num_tokens": state.num_tokens,
        "elapsed_s": state.elapsed_s,
        "drafted_by": drafted_by,
        "accepted_by": by_source(one.accepted_by for one in clients),
        "policy_error": state.policy_error,
        "alone": _alone(state),
        "versions": versions(),
    }


def _alone(state: DemoState) -> dict[str, Any] | None:
    """Returns the figures of the same texts by the target without drafts; None if it did not write them."""
    if state.alone is None or not state.alone.elapsed_s or not state.elapsed_s:
        return None
    pairs = [(state.progress[name], alone) for name, alone in state.alone.progress.items()]
    speedups = [one.tokens_per_s / alone.tokens_per_s for one, alone in pairs if one.num_tokens and alone.num_tokens]
    return {
        "tokens_per_s": state.alone.num_tokens / state.alone.elapsed_s,
        "speedup": geometric_mean(speedups) if speedups else 1.0,
        "num_different": sum(one.token_ids != alone.token_ids for one, alone in pairs),
    }


def by_source(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Returns the sums of counts by draft source."""
    each = list(counts)
    return {source: sum(one.get(source, 0) for one in each) for source in get_args(DraftSource)}


def _client(one: Progress, config: DemoConfig) -> dict[str, Any]:
    return {
        "name": one.client.name,
        "domain": one.client.domain,
        "draft_model": one.client.draft_model,
        "prompt": one.client.prompt.text,
        "seed": one.client.prompt.seed,
        **{name: getattr(one, name) for name in OF_CLIENT},
        "token_ids": None if config.http else one.token_ids,  # not available over HTTP
    }


def _shown(client: dict[str, Any]) -> str:
    """Returns the name of a client's draft model, without folders."""
    return printable(str(client["draft_model"]).rstrip("/").rpartition("/")[2])


def to_text(result: dict[str, Any]) -> str:
    """Returns the result as a table, for people."""
    width = max(14, *(len(_shown(one)) for one in result["clients"]))
    lines = [
        f"{result['policy']} policy, {result['rounds']} rounds, {result['verification']} verification, "
        f"budget {result['budget']}, target {result['model']}",
        "",
        f"{'client':<11} {'domain':<9} {'draft model':<{width}} {'tokens':>6} {'rounds':>8} {'accepted':>8} "
        f"{'goodput':>8} {'tokens/s':>8}",
    ]
    for one in result["clients"]:
        rounds = f"{one['num_rounds']}/{one['num_rounds_passed']}"
        lines.append(
            f"{one['name']:<11} {printable(one['domain']) or '-':<9} {_shown(one):<{width}} {one['num_tokens']:>6} "
            f"{rounds:>8} {one['draft_acceptance_rate']:>8.2f} {one['goodput']:>8.2f} {one['tokens_per_s']:>8.1f}"
        )
    lines += ["", *(f"{one['name']:<11} {printable(one['text'])[:TEXT_WIDTH]}" for one in result["clients"])]
    lines += ["", *(f"{name:<28} {value}" for name, value in figures(result).items())]
    return "\n".join(lines)


def closing(result: dict[str, Any]) -> str:
    """Returns the line that says what drafting brought; empty if the target did not write the texts alone."""
    if (alone := result["alone"]) is None:
        return ""
    num_texts, num_different = len(result["clients"]), alone["num_different"]
    texts = "the texts are the same" if not num_different else f"{num_different} of {num_texts} texts differ"
    if num_different and result["verification"] == "ratio":
        texts += ", as the ratio rule draws them anew"
    together = result["tokens_per_s"] / alone["tokens_per_s"]
    return (
        f"With drafts a text came {alone['speedup']:.2f} times as fast as from the target alone (geometric mean of "
        f"{num_texts} at once), all together {together:.2f} times ({result['tokens_per_s']:.1f} and "
        f"{alone['tokens_per_s']:.1f} tokens/s); {texts}."
    )


def printable(text: str) -> str:
    """Returns text on one line, without control characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def figures(result: dict[str, Any]) -> dict[str, str]:
    """Returns the whole run's figures by name."""
    wall_s = result["wall_s"]
    total_s = sum(wall_s.values()) or 1.0
    return {
        **short_figures(result),
        "accepted of drafted tokens": sources(result["drafted_by"], result["accepted_by"]),
        "verify node's time": ", ".join(f"{part} {wall_s[part] / total_s:.0%}" for part in WALL),
        **({"policy error": result["policy_error"]} if result["policy_error"] else {}),
        **_tiers(result["clients"]),
    }


def _tiers(clients: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Returns, by tier, how many texts attained it and were promised, and their TPOT; empty without tiers."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in clients:
        if one["slo"] is not None:
            found.setdefault(one["slo"]["tier"], []).append(one["slo"])
    told = {}
    for tier, kept in found.items():
        line = f"{sum(one['attained'] for one in kept)} of {len(kept)} texts"
        if times := [one["tpot_ms"] for one in kept if one["tpot_ms"] is not None]:
            line += f", {fmean(times):.1f} ms per token"
        if promised := [one["attained"] for one in kept if one["promised"]]:
            line += f"; {sum(promised)} of {len(promised)} promised ones"
        elif any(one["promised"] is not None for one in kept):  # None: the node makes no promises
            line += "; none was promised"
        told[f"in time, {tier}"] = line
    return told


def sources(drafted_by: Mapping[str, int], accepted_by: Mapping[str, int]) -> str:
    """Returns a line with each source's accepted and drafted tokens."""
    return ", ".join(f"{source} {accepted_by[source]} of {number}" for source, number in drafted_by.items())


def short_figures(result: dict[str, Any]) -> dict[str, str]:
    """Returns the single-number figures by name."""
    return {
        "tokens": f"{result['num_tokens']}",
        "seconds": f"{result['elapsed_s']:.1f}",
        "tokens / s": f"{result['tokens_per_s']:.1f}",
        "rounds": f"{result['num_rounds']}",
        "log-utility": f"{result['log_utility']:.3f}",
        "log-utility of tokens / s": f"{result['log_utility_per_s']:.3f}",
        "Jain index of goodput": f"{result['jain']:.3f}",
        "worst client's share": f"{result['worst_share']:.3f}",
        "uplink bytes / drafted token": f"{result['uplink_bytes_per_token']:.1f}",
    }


# -- several runs ------------------------------------------------------------------------------------------------------


def ways(config: DemoConfig) -> dict[str, DemoConfig]:
    """Returns the configurations to compare: three policies, the requested policy, and the paper's preset."""
    found = {policy: replace(config, policy=policy) for policy in (*POLICIES, config.policy)}
    # without what the preset sets itself
    shared = {name: getattr(DemoConfig, name) for name in PAPER if hasattr(DemoConfig, name)}
    return found | {"paper": replace(config, policy="gradient", **shared, preset="paper")}


def compare(config: DemoConfig, states: Mapping[str, DemoState]) -> dict[str, Any]:
    """Returns the results by configuration, and whether all texts under the match rule are equal, as they must be.

    None instead if fewer than two configurations have that rule.
    """
    compared = ways(config)
    results = {name: summarize(compared[name], state) for name, state in states.items()}
    matched = [result for result in results.values() if result["verification"] == "match"]
    texts = [[client["token_ids"] for client in result["clients"]] for result in matched]
    is_identical = all(text == texts[0] for text in texts) if len(texts) > 1 else None
    return {"compare": results, "texts_identical": is_identical}


def comparison_to_text(result: dict[str, Any]) -> str:
    """Returns a table with one column per configuration."""
    results = result["compare"]
    rows: list[tuple[str, list[str]]] = [("", list(results))]
    figures = [short_figures(one) for one in results.values()]
    rows += [(name, [column[name] for column in figures]) for name in figures[0]]
    rows += [("", [])]
    for index, client in enumerate(next(iter(results.values()))["clients"]):
        label = f"goodput {client['name']} {client['domain']}"
        rows.append((label, [f"{one['clients'][index]['goodput']:.2f}" for one in results.values()]))
    rows += [("", []), ("texts identical", [{True: "yes", False: "no", None: "-"}[result["texts_identical"]]])]
    width = max(12, *(len(name) + 2 for name in results))
    lines = (f"{label:<28}" + "".join(f"{cell:>{width}}" for cell in cells) for label, cells in rows)
    return "\n".join(line.rstrip() for line in lines)
