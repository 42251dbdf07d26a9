"""The arithmetic of a demo, by hand, from events made up for it."""

import math
import re
from typing import Any

import pytest
from matplotlib.figure import Figure

from goodspeed.app.demo import plot, summary
from goodspeed.app.demo.options import Client, DemoConfig
from goodspeed.app.demo.state import DemoState
from goodspeed.serving.prompts import Prompt

ZERO = {"receive": 0.0, "forward": 0.0, "verify": 0.0, "schedule": 0.0, "send": 0.0}


def row(client: str, num_verified: int, num_accepted: int, num_tokens: int, goodput: float = 1.0) -> dict[str, Any]:
    return {
        "client": client,
        "session": client,
        "num_verified": num_verified,
        "num_accepted": num_accepted,
        "num_tokens": num_tokens,
        "may_draft": 3,
        "draft_acceptance_rate": 0.5,
        "goodput": goodput,
    }


def round_event(number: int, uplink_bytes: int, receive: float, *rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "event": "round",
        "number": number,
        "wall_s": {**ZERO, "receive": receive, "forward": 0.5 * number},
        "uplink_bytes": uplink_bytes,
        "sessions": list(rows),
    }


def tokens_event(token_ids: list[int], drafted: dict[str, int], accepted: dict[str, int]) -> dict[str, Any]:
    text = "x" * len(token_ids)
    return {"event": "tokens", "text": text, "token_ids": token_ids, "drafted": drafted, "accepted": accepted}


def finish_event(
    token_ids: list[int], elapsed_s: float, num_ngram: int = 0, slo: dict[str, Any] | None = None, **counts: int
) -> dict[str, Any]:
    return {
        "event": "finish",
        "text": "x" * len(token_ids),
        "token_ids": token_ids,
        "num_tokens": len(token_ids),
        "finish_reason": "length",
        "elapsed_s": elapsed_s,
        "slo": slo,
        "drafted": {"model": counts["num_drafted"] - num_ngram, "ngram": num_ngram, "self": 0},
        "accepted": {"model": counts["num_accepted"], "ngram": 0, "self": 0},
        **counts,
    }


def stopped_event(wall_s: dict[str, float], uplink_bytes: int = 150) -> Any:
    totals = {"num_rounds": 5, "uplink_bytes": uplink_bytes, "wall_s": wall_s, "refusals": {}, "policy_error": None}
    return {"event": "stopped", **totals}


@pytest.fixture
def state() -> DemoState:
    """Five rounds: a takes part in rounds 1, 2 and 5 and gets 8 tokens; b in 2 and 3 and gets 2."""
    clients = [Client("a", "small", Prompt("one", "math", 1)), Client("b", "large", Prompt("two", "", 2))]
    state = DemoState.of(clients)
    state.start(100.0)
    state.apply_verify(round_event(1, 0, 7.0, row("a", 0, 0, 1, 1.0)))
    state.apply_verify(round_event(2, 60, 7.5, row("a", 4, 2, 3, 2.0), row("b", 0, 0, 1, 1.0)))
    state.apply_verify(round_event(3, 90, 8.0, row("b", 2, 0, 1, 0.5)))
    state.apply_draft("b", finish_event([5, 6], 2.0, num_rounds=2, num_drafted=2, num_accepted=0, num_ngram=2), 102.0)
    state.apply_verify(round_event(4, 90, 8.0))
    state.apply_draft("a", tokens_event([1, 2], {"model": 4, "ngram": 2}, {"model": 1, "ngram": 2}), 103.0)
    state.apply_draft(
        "a", finish_event([1, 2, 3, 4, 5, 6, 7, 8], 4.0, num_rounds=3, num_drafted=8, num_accepted=5), 104.0
    )
    state.apply_verify(round_event(5, 150, 8.5, row("a", 4, 3, 4, 4.0)))
    stopped = {"receive": 8.5, "forward": 2.5, "verify": 0.4, "schedule": 0.2, "send": 0.1}
    state.apply_verify(stopped_event(stopped))
    return state


def test_what_one_run_comes_to(state: DemoState) -> None:
    result = summary.summarize(DemoConfig(clients=2), state)
    a, b = result["clients"]
    assert a["goodput"] == 8 / 5  # rounds 1 to 5
    assert b["goodput"] == 2 / 2  # rounds 2 and 3
    assert (a["draft_acceptance_rate"], b["draft_acceptance_rate"]) == (5 / 8, 0.0)
    assert (a["tokens_per_s"], b["tokens_per_s"]) == (2.0, 1.0)
    assert (a["num_rounds"], b["num_rounds"]) == (3, 2)
    assert result["tokens_per_s"] == 10 / 4
    assert result["log_utility"] == pytest.approx(math.log(1.6))
    assert result["log_utility_per_s"] == pytest.approx(math.log(2.0))
    assert result["worst_share"] == pytest.approx(1 / 2.6)
    assert result["jain"] == pytest.approx((1.6 + 1) ** 2 / (2 * (1.6**2 + 1)))
    assert result["uplink_bytes_per_token"] == 150 / 10
    assert (a["num_rounds_passed"], b["num_rounds_passed"]) == (5, 2)
    assert result["num_rounds"] == 5
    assert result["drafted_by"] == {"model": 8, "ngram": 2, "self": 0}
    assert result["accepted_by"] == {"model": 5, "ngram": 0, "self": 0}
    assert b["drafted_by"] == {"model": 0, "ngram": 2, "self": 0}
    assert "model 5 of 8, ngram 0 of 2, self 0 of 0" in summary.to_text(result)
    assert result["wall_s"] == {"receive": 1.5, "forward": 2.5, "verify": 0.4, "schedule": 0.2, "send": 0.1}
    assert not [name for name in summary.figures(result) if name.startswith("in time")]
    # the verify node's own drafts come from nobody
    state.apply_draft("b", tokens_event([7], {"model": 0, "ngram": 2, "self": 90}, {"self": 9}), 105.0)
    assert summary.summarize(DemoConfig(clients=2), state)["uplink_bytes_per_token"] == 150 / 10


def test_the_closing_line_compares_each_text_with_the_target_s_own(state: DemoState) -> None:
    assert summary.closing(summary.summarize(DemoConfig(clients=2), state)) == ""  # the target wrote nothing alone
    state.alone = DemoState.of([one.client for one in state.progress.values()])
    state.alone.start(200.0)
    none: Any = {"num_rounds": 1, "num_drafted": 0, "num_accepted": 0}
    state.alone.apply_draft("a", finish_event(state.progress["a"].token_ids, 8.0, **none), 208.0)  # half as fast
    state.alone.apply_draft("b", finish_event(state.progress["b"].token_ids, 16.0, **none), 216.0)  # an eighth
    result = summary.summarize(DemoConfig(clients=2), state)
    assert result["alone"] == {"tokens_per_s": 10 / 16, "speedup": pytest.approx(4.0), "num_different": 0}
    assert summary.closing(result) == (
        "With drafts a text came 4.00 times as fast as from the target alone (geometric mean of 2 at once), "
        "all together 4.00 times (2.5 and 0.6 tokens/s); the texts are the same."
    )
    state.alone.progress["b"].token_ids = [9, 9]
    assert "; 1 of 2 texts differ." in summary.closing(summary.summarize(DemoConfig(clients=2), state))
    ratio = summary.summarize(DemoConfig(clients=2, verification="ratio"), state)
    assert "1 of 2 texts differ, as the ratio rule draws them anew." in summary.closing(ratio)


def test_what_drafts_is_known_while_texts_go_on() -> None:
    state = DemoState.of([Client(name, "small", Prompt("", "", 1)) for name in "ab"])
    state.apply_draft("a", tokens_event([1], {"model": 4, "ngram": 2}, {"model": 1, "ngram": 2}), 1.0)
    state.apply_draft("b", tokens_event([1], {"ngram": 5, "self": 9}, {"ngram": 3, "self": 6}), 1.0)
    state.apply_draft("b", tokens_event([2], {"ngram": 7, "self": 9}, {"ngram": 4, "self": 6}), 2.0)  # all so far
    result = summary.summarize(DemoConfig(), state)
    assert result["drafted_by"] == {"model": 4, "ngram": 9, "self": 9}
    assert result["accepted_by"] == {"model": 1, "ngram": 6, "self": 6}


def test_what_others_ask_for_afterwards_counts_for_nothing(state: DemoState) -> None:
    before = summary.summarize(DemoConfig(), state)
    state.is_over = True
    state.apply_verify(round_event(6, 999, 20.0, row("stranger", 8, 8, 9)))
    state.apply_verify(stopped_event(ZERO, uplink_bytes=999))
    assert summary.summarize(DemoConfig(), state) == before


def test_a_client_without_a_token_is_left_out_of_fairness() -> None:
    state = DemoState.of([Client("a", "small", Prompt("one", "", 1)), Client("b", "small", Prompt("two", "", 1))])
    state.start(0.0)
    state.apply_verify(round_event(1, 0, 0.0, row("a", 0, 0, 1), row("b", 0, 0, 0)))
    state.apply_draft("b", finish_event([], 1.0, num_rounds=1, num_drafted=0, num_accepted=0), 1.0)
    state.apply_draft("a", finish_event([1], 1.0, num_rounds=1, num_drafted=0, num_accepted=0), 1.0)
    result = summary.summarize(DemoConfig(), state)
    assert (result["jain"], result["log_utility"], result["uplink_bytes_per_token"]) == (1.0, 0.0, 0.0)


def test_jain_and_utility_by_hand() -> None:
    assert summary.jain_index([1.0, 1.0, 1.0]) == pytest.approx(1.0)
    assert summary.jain_index([3.0, 0.0, 0.0]) == pytest.approx(1 / 3)
    assert summary.jain_index([1.0, 3.0]) == pytest.approx(16 / 20)
    assert summary.jain_index([]) == 0.0
    assert summary.log_utility([math.e, math.e**2]) == pytest.approx(3.0)


def test_series_for_the_picture(state: DemoState) -> None:
    assert plot.goodput_series(state, "a") == ([1, 2, 5], [1.0, 2.0, 4.0])
    numbers, utilities = plot.utility_series(state)
    assert numbers == [1, 2, 3, 4, 5]
    expected = [1.0, 2.0, 2.0 * 0.5, 2.0 * 0.5, 4.0 * 0.5]  # a's times b's latest estimate
    assert utilities == pytest.approx([math.log(value) for value in expected])


def test_the_text_names_and_explains_every_client_and_figure(state: DemoState) -> None:
    text = summary.to_text(summary.summarize(DemoConfig(clients=2), state))
    assert text.startswith("gradient policy, continuous rounds, match verification, ")
    assert "a           math      small               8      3/5     0.62     1.60      2.0" in text
    assert re.search(r"^log-utility +0\.470$", text, re.MULTILINE)
    assert "forward 53%" in text
    figures = ("log-utility", "Jain index", "worst client's share", "uplink bytes", "verify node's time")
    for name in ("rounds", "accepted", "goodput", *figures):
        assert name in text
        assert f"\n{name}: " in f"\n{summary.OF_ONE_RUN}"
    paper = summary.to_text(summary.summarize(DemoConfig(preset="paper"), state))
    assert paper.startswith("gradient policy, barrier rounds, ratio verification, ")


def test_curves_are_told_apart_and_their_names_hide_none() -> None:
    many = DemoState.of([Client(f"client-{i}", "small", Prompt("", "math", 1)) for i in range(plot.MAX_NAMED)])
    for number in (1, 2):
        rows = [row(name, 0, 0, 1) for name in many.progress]
        many.apply_verify(round_event(number, 0, 0.0, *rows))
    axes = Figure().subplots()
    plot.draw_goodput(axes, many, "")
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.get_lines()}
    assert len(looks) == plot.MAX_NAMED
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()][:2] == ["client-0 math", "client-1 math"]
    axes.figure.draw_without_rendering()
    assert legend.get_window_extent().x0 >= axes.get_window_extent().x1
    plot.draw_utility(axes, many, "")
    assert "tokens per round" in axes.get_ylabel()
    assert "round" in axes.get_xlabel()


def test_what_is_wrong_with_a_policy_of_ones_own_is_told(state: DemoState) -> None:
    assert "policy error" not in summary.figures(summary.summarize(DemoConfig(), state))
    state.apply_verify(stopped_event(ZERO) | {"policy_error": "the policy mine:Mine gave 3 lengths for 4 clients"})
    figures = summary.figures(summary.summarize(DemoConfig(), state))
    assert figures["policy error"] == "the policy mine:Mine gave 3 lengths for 4 clients"


def test_a_comparison_has_the_policy_that_was_asked_for_and_the_paper(state: DemoState) -> None:
    ways = summary.ways(DemoConfig(temperature=0.5, verification="ratio", proposal="dense-fp16"))
    assert list(ways) == ["gradient", "fixed", "random", "paper"]
    assert [way.preset for way in ways.values()] == [None, None, None, "paper"]
    assert {way.temperature for way in ways.values()} == {0.5}
    assert (ways["fixed"].policy, ways["paper"].proposal) == ("fixed", "dense-fp32")
    assert list(summary.ways(DemoConfig(policy="./some/where/mine.py:Mine")))[3:4] == ["./some/where/mine.py:Mine"]
    own = DemoConfig(policy="./some/where/mine.py:Mine")
    table = summary.comparison_to_text(summary.compare(own, {"fixed": state, "./some/where/mine.py:Mine": state}))
    assert "  ./some/where/mine.py:Mine\n" in table
    for figure in ("log-utility", "Jain index of goodput", "worst client's share"):
        assert f"\n{figure} " in table


def test_texts_are_compared_between_policies(state: DemoState) -> None:
    same = summary.compare(DemoConfig(clients=2), {"gradient": state, "fixed": state})
    assert same["texts_identical"] is True
    assert "texts identical                      yes" in summary.comparison_to_text(same)
    other = DemoState.of([one.client for one in state.progress.values()])
    assert summary.compare(DemoConfig(clients=2), {"gradient": state, "fixed": other})["texts_identical"] is False
    for config in (DemoConfig(clients=2, verification="ratio"), DemoConfig(clients=2)):  # nothing to compare
        none = summary.compare(
            config, {"gradient": state, "fixed" if config.verification == "ratio" else "paper": other}
        )
        assert none["texts_identical"] is None
        assert "texts identical                        -" in summary.comparison_to_text(none)


def test_texts_in_time_are_counted_by_tier() -> None:
    state = DemoState.of([Client(name, "small", Prompt("one", "math", 1), "urgent") for name in "abcd"])
    state.start(100.0)
    for name, tier, tpot_ms, attained, promised in (
        ("a", "urgent", 10.0, True, True),
        ("b", "urgent", 20.0, False, False),
        ("c", "slow", None, True, None),
        ("d", "busy", 30.0, False, False),
    ):
        slo = {"tier": tier, "ttft_ms": 5.0, "tpot_ms": tpot_ms, "attained": attained, "promised": promised}
        event = finish_event([5, 6], 2.0, slo=slo, num_rounds=2, num_drafted=2, num_accepted=0)
        state.apply_draft(name, event, 102.0)
    found = summary.figures(summary.summarize(DemoConfig(), state))
    assert found["in time, urgent"] == "1 of 2 texts, 15.0 ms per token; 1 of 1 promised ones"
    assert found["in time, slow"] == "1 of 1 texts"
    assert found["in time, busy"] == "0 of 1 texts, 30.0 ms per token; none was promised"
