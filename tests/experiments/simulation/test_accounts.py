"""A run's time and tokens, counted by hand; and the paper's worlds as settings."""

from math import log

import pytest

from experiments.fig3_time import ratio
from experiments.simulation import presets
from experiments.simulation.accounts import Accounts, Run, Seen, interval, jain, log_utility, run
from experiments.simulation.nodes.surroundings import Finished
from experiments.simulation.paper import POLICIES, TABLE_1, Nodes, Row, world
from experiments.stragglers import noticed
from goodspeed.wire.messages import Verdict
from verify_node.scheduler.round import Round

A, B = b"a" * 16, b"b" * 16


def verdict(session_id, num_tokens):
    return Verdict(session_id, 1, 0, (1,) * num_tokens, num_tokens, num_tokens - 1, 3)


def test_wall_time_is_split_by_hand():
    """A wait of 1 s, a round of 2, sending 0.25; a wait of 3 that begins with that, a round of 1, sending 0.5."""
    accounts = Accounts()
    accounts.note(Finished(Round(1, ()), 1.0, 1.0, 2.0, (verdict(A, 3), verdict(B, 1)), 0.25))
    accounts.note(Finished(Round(2, ()), 6.0, 3.0, 1.0, (verdict(A, 2),), 0.5))
    assert (accounts.receive_s, accounts.verify_s, accounts.send_s) == (1.0 + 2.75, 3.0, 0.75)
    assert accounts.wall_s == 7.5
    assert (accounts.num_rounds, accounts.num_accepted) == (2, 2 + 0 + 1)
    assert accounts.verdicts == {A: [Seen(3.0, 3, 1), Seen(7.0, 2, 2)], B: [Seen(3.0, 1, 1)]}
    both = Run(accounts, ((A,), (B,)), (7.0, 3.0))
    assert both.goodputs == [2.5, 1.0]
    assert both.speeds == [5 / 7, 1 / 3]
    assert (both.num_tokens, both.tokens_per_s) == (6, 6 / 7)
    assert (both.gaps(0), both.gaps(1)) == ([(4.0, 2)], [])


def test_no_gap_reaches_from_one_text_to_the_next():
    accounts = Accounts()
    accounts.verdicts |= {A: [Seen(1.0, 1, 1), Seen(2.0, 2, 2)], B: [Seen(9.0, 1, 3), Seen(9.5, 4, 4)]}
    assert Run(accounts, ((A, B),), (9.5,)).gaps(0) == [(1.0, 2), (0.5, 4)]


def test_what_users_notice_by_hand():
    """Six clients wait 100 ms for each token, and one 400 ms for 4 at once: 100 ms a token for all."""

    class Seven(Run):
        def gaps(self, client: int) -> list[tuple[float, int]]:
            return [(0.4, 4)] if client == 6 else [(0.1, 1)] * 16

    found = noticed(Seven(Accounts(), (), ()))
    assert found["gap_mean_ms"] == pytest.approx(1e3 * (0.4 + 96 * 0.1) / 97)
    assert (found["gap_p95_ms"], found["token_p95_ms"]) == pytest.approx((100.0, 100.0))
    assert found["gap_p99_ms"] == pytest.approx(100.0 + 300.0 * 0.04)  # rank 0.99 x 96 = 95.04


def test_measures_of_fairness_and_chance():
    assert log_utility([2.0, 3.0]) == pytest.approx(log(6.0))
    assert (jain([5.0, 5.0]), jain([1.0, 0.0, 0.0, 0.0])) == (1.0, 0.25)
    mean, half = interval([1.0, 2.0, 3.0])
    assert (mean, half) == pytest.approx((2.0, 4.302653 / 3**0.5))  # t of two degrees of freedom, at 97.5 %
    assert ratio([2.0, 9.0], [1.0, 3.0])[0] == 2.5


def test_table_1_as_worlds():
    assert [(row.num_clients, row.budget, row.max_tokens) for row in TABLE_1] == [
        (4, 24, 50),
        (4, 28, 50),
        *[(8, 16, 150), (8, 20, 150)] * 2,
    ]
    row = TABLE_1[3]
    settings = world(row, Nodes(slower=(1.0, 2.0)), policy="fixed", rounds="barrier", wire="match", num_texts=1, seed=3)
    assert settings.max_draft == 3  # 20 / 8, rounded up: no client gets more when others have finished
    assert settings.draft_cost[0] == presets.FAMILIES["Qwen3"].draft_costs[0]
    larger = presets.FAMILIES["Qwen3"].draft_costs[1]
    assert settings.draft_cost[1].round_s(2, 1, 50) == pytest.approx(2 * larger.round_s(2, 1, 50))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("rounds", ["barrier", "continuous"])
def test_everybody_gets_all_tokens_and_all_time_is_accounted_for(policy, rounds):
    row = Row("Llama 3", 3, 8, 20, (0, 1))
    found = run(world(row, Nodes(), policy=policy, rounds=rounds, wire="dense-fp32", num_texts=2, seed=1), 1)
    assert [found.client_tokens(client) for client in range(3)] == [40] * 3
    last = max(found.done_s)
    assert last == pytest.approx(found.accounts.wall_s, rel=0.02)
