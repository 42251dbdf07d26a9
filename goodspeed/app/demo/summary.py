"""Compares the runs with drafts with those of the target alone: JSON result, table and closing line."""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import geometric_mean, median
from typing import Any, get_args

from goodspeed.app.demo.answers import ALONE, WITH_DRAFTS, Run, Way
from goodspeed.app.demo.options import DemoConfig, shown
from goodspeed.app.demo.view import one_line
from goodspeed.drafting.sources import by_source
from goodspeed.fair.estimators import jain_index
from goodspeed.serving.measuring.recording import versions

EXPLANATION = """\
rounds: that gave it tokens; accepted: of its drafted tokens; goodput: tokens a round; alone: tokens/s without drafts
Jain index: 1 when all have the same goodput, 1/n when one of n has everything; log-utility: the sum of ln(goodput)"""


def summarize(config: DemoConfig, runs: Sequence[Run]) -> dict[str, Any]:
    """Returns the result, for `--json`. Counts and texts are those of the first run with drafts; rates are medians."""
    clients = [_client(runs, index) for index in range(len(runs[0].answers))]
    goodputs = [one["goodput"] for one in clients if one["num_tokens"]]
    rates = {way: median(run.num_tokens / run.elapsed_s for run in runs if run.way == way) for way in get_args(Way)}
    speedups = [one["tokens_per_s"] / one["alone_tokens_per_s"] for one in clients if one["alone_tokens_per_s"]]
    return {
        "policy": config.policy,
        "preset": config.preset,
        "model": shown(config.model),
        "temperature": config.temperature,
        "num_tokens": sum(one["num_tokens"] for one in clients),
        "tokens_per_s": rates[WITH_DRAFTS],
        "log_utility": sum(math.log(goodput) for goodput in goodputs),
        "jain": jain_index(goodputs),
        "drafted_by": by_source(sum((Counter(one["drafted_by"]) for one in clients), Counter())),
        "accepted_by": by_source(sum((Counter(one["accepted_by"]) for one in clients), Counter())),
        "alone": {
            "tokens_per_s": rates[ALONE],
            "speedup": geometric_mean(speedups) if speedups else 1.0,
            "num_different": sum(one["is_different"] for one in clients),
        },
        "clients": clients,
        "versions": versions(),
    }


def _client(runs: Sequence[Run], index: int) -> dict[str, Any]:
    first = next(run.answers[index] for run in runs if run.way == WITH_DRAFTS)
    rates = {way: median(run.answers[index].tokens_per_s for run in runs if run.way == way) for way in get_args(Way)}
    counts, num_tokens = first.counts, len(first.token_ids)
    return {
        "name": first.client.name,
        "domain": first.client.domain,
        "draft_node": f"draft-{first.client.draft_node + 1}",
        "draft_model": first.client.draft_model,
        "prompt": first.client.prompt.text,
        "seed": first.client.prompt.seed,
        "text": first.text,
        "token_ids": first.token_ids,
        "finish_reason": first.finish_reason,
        "num_tokens": num_tokens,
        **{f"num_{name}": counts[name] for name in ("rounds", "drafted", "accepted")},
        "draft_acceptance_rate": counts["accepted"] / counts["drafted"] if counts["drafted"] else 0.0,
        "goodput": num_tokens / counts["rounds"] if counts["rounds"] else 0.0,
        "drafted_by": counts["drafted_by"],
        "accepted_by": counts["accepted_by"],
        "tokens_per_s": rates[WITH_DRAFTS],
        "alone_tokens_per_s": rates[ALONE],
        "is_different": any(run.answers[index].token_ids != first.token_ids for run in runs),
    }


def to_text(result: dict[str, Any]) -> str:
    """Returns the table and the closing line."""
    names = [f"{one['draft_node']} {shown(one['draft_model'])}" for one in result["clients"]]
    width = max(map(len, names))
    lines = [
        f"{'question':<14} {'draft node':<{width}} {'tokens':>6} {'rounds':>6} {'accepted':>8} {'goodput':>7} "
        f"{'tokens/s':>8} {'alone':>6} {'times':>5}"
    ]
    for name, one in zip(names, result["clients"], strict=True):
        alone = one["alone_tokens_per_s"]
        lines.append(
            f"{one_line(one['domain']):<14} {name:<{width}} {one['num_tokens']:>6} {one['num_rounds']:>6} "
            f"{one['draft_acceptance_rate']:>8.2f} {one['goodput']:>7.2f} {one['tokens_per_s']:>8.1f} {alone:>6.1f} "
            f"{one['tokens_per_s'] / alone if alone else 1.0:>5.2f}"
        )
    sources = (f"{name} {result['accepted_by'][name]} of {number}" for name, number in result["drafted_by"].items())
    lines += [
        "",
        f"accepted of drafted tokens: {', '.join(sources)}; Jain index of goodput {result['jain']:.3f}, "
        f"log-utility {result['log_utility']:.2f}",
        EXPLANATION,
        "",
        closing(result),
    ]
    return "\n".join(lines)


def closing(result: dict[str, Any]) -> str:
    """Returns what drafting brought, or that it brought nothing."""
    alone, num_texts = result["alone"], len(result["clients"])
    together = result["tokens_per_s"] / alone["tokens_per_s"] if alone["tokens_per_s"] else 1.0
    speedup = (
        f"With drafts {alone['speedup']:.2f} times as fast as the same target alone in the same run (geometric mean of "
        f"{num_texts} at once), all together {together:.2f} times ({result['tokens_per_s']:.0f} and "
        f"{alone['tokens_per_s']:.0f} tokens/s)"
    )
    pays = "" if round(alone["speedup"], 2) >= 1 else "; drafting does not pay here"
    if different := alone["num_different"]:
        why = ", as the preset's rule draws them anew" if result["preset"] else ""
        return f"{speedup}{pays}. {different} of {num_texts} texts differ between the runs{why}."
    return f"{speedup}{pays}. All texts are token for token the target's own."
