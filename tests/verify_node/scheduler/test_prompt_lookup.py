"""Drafts from a session's own text, and how much of a round's time they may take."""

from typing import Any
from unittest.mock import Mock

import pytest

from goodspeed.engine.paged.pages import PagePool
from goodspeed.fair.round_time import Linear
from goodspeed.wire import probabilities
from goodspeed.wire.messages import Sampling
from tests.verify_node.phases import new_client
from tests.verify_node.scheduler.drafting import NOW, drafting, lengths, make_choice, make_session, pack
from verify_node.clients.calibration import ClaimedOf
from verify_node.scheduler import prompt_lookup
from verify_node.scheduler.commit import commit
from verify_node.scheduler.prompt_lookup import MAX_DRAFTS, MAX_LENGTH, MISSED_LOOKUPS, PromptLookup, Wanting
from verify_node.scheduler.round import Outcome
from verify_node.session.draft_tokens import DraftTokens

AGAIN = (5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16) * 3
GREEDY = Sampling(temperature=0.0)


def repeating(number: int = 1, prompt: Any = AGAIN, **changes: Any) -> Any:
    return make_session(number, prompt=prompt, sampling=GREEDY, **changes)


def silent(number: int) -> Any:
    """A session in whose text nothing comes again."""
    return make_session(number, prompt=range(100 * number, 100 * number + 20), sampling=GREEDY)


def wanting(*sessions: Any, worth: float = 1.0, least_probability: float = 0.0) -> list[Wanting]:
    return [Wanting(session, worth, least_probability) for session in sessions]


@pytest.mark.parametrize(
    ("changes", "length"), [({}, MAX_LENGTH), ({"stop_ids": (8,)}, 3), ({"max_tokens": 4}, 3)], ids=str
)
def test_a_text_that_repeats_itself_is_drafted_from_up_to_its_end(changes, length):
    session = repeating(**changes)
    [(of, drafted)] = PromptLookup().draft(wanting(session))
    assert of is session
    assert drafted.tokens == AGAIN[:length]
    assert (drafted.source, len(drafted.codes)) == ("self", length)


def test_it_follows_the_text_and_another_that_the_session_is_opened_again_with():
    session, drafts = repeating(), PromptLookup()
    drafts.draft(wanting(session))
    session.commit((5, 6, 7))
    [(_, drafted)] = drafts.draft(wanting(session))
    assert drafted.tokens[:3] == (8, 9, 10)
    other = (31, 32, 33, 34, 35, 36) * 3
    [(_, drafted)] = drafts.draft(wanting(repeating(prompt=other)))
    assert drafted.tokens[:6] == other[:6]


def test_tokens_that_are_not_worth_their_time_or_may_not_be_drawn_yet_are_not_drafted():
    [(_, long)] = PromptLookup().draft(wanting(repeating()))
    [(_, short)] = PromptLookup().draft(wanting(repeating(), least_probability=0.8))
    assert 0 < len(short.tokens) < len(long.tokens)
    assert PromptLookup().draft(wanting(repeating(), least_probability=1.0)) == []
    assert PromptLookup().draft(wanting(repeating(stop_ids=(5,), min_tokens=10))) == []


@pytest.mark.parametrize(
    ("verification", "drafter", "num"),
    [("match", "auto", 8), ("ratio", "auto", 0), ("match", "model", 0), ("match", "none", 0)],
)
def test_only_for_sessions_that_may_have_it(verification, drafter, num):
    session = repeating(verification=verification, drafter=drafter)
    assert lengths(make_choice(prompt_lookup=PromptLookup()), session) == [num]


def test_what_the_draft_node_drafted_goes_first():
    session = drafting(1, (0.9, 0.9), tokens=(21, 22), prompt=AGAIN, sampling=GREEDY)
    assert make_choice(prompt_lookup=PromptLookup()).choose([session], 1, NOW)[session.session_id].source == "model"


def test_the_last_rounds_price_shortens_own_drafts():
    lookup: Any = PromptLookup()
    lookup.draft = Mock(wraps=lookup.draft)
    choice = make_choice(cost=Linear(fixed_s=0.01, token_s=0.002), prompt_lookup=lookup, budget=20)
    choice.choose([repeating()], 1, NOW)
    choice.choose([repeating(client=new_client(weight=2.0)), repeating(2, client=new_client("b"))], 1, NOW)
    first, then = ([one.least_probability for one in call.args[0]] for call in lookup.draft.call_args_list)
    assert first == [0.0]
    heavy, light = then
    assert 0.1 < 2 * heavy == light < 1.0


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_so_many_texts_a_round_those_of_the_highest_worth_and_of_equal_worth_in_turn():
    sessions = [repeating(number) for number in range(1, 3 * MAX_DRAFTS)]
    asked = [Wanting(session, float(number), 0.0) for number, session in enumerate(sessions)]
    assert {session.admitted for session, _ in PromptLookup().draft(asked)} == {*range(2 * MAX_DRAFTS, 3 * MAX_DRAFTS)}
    drafts, equal = PromptLookup(), sessions[: 2 * MAX_DRAFTS - 1]
    served = {session.admitted for _ in range(2) for session, _ in drafts.draft(wanting(*equal))}
    assert served == {session.admitted for session in equal}


def test_texts_that_say_nothing_do_not_keep_others_out_and_have_another_turn():
    mute = [silent(number) for number in range(1, 2 * MAX_DRAFTS)]
    poor = repeating(1000)
    drafts, seen = PromptLookup(), 0
    for _ in range(3):
        seen += len(drafts.draft([*wanting(*mute, worth=9.0), *wanting(poor, worth=1.0)]))
    assert seen >= 1
    before = dict(drafts._looked_up)
    drafts.draft([*wanting(*mute, worth=9.0), *wanting(poor, worth=1.0)])
    assert sum(drafts._looked_up[key] > before[key] for key in drafts._misses & before.keys()) >= MISSED_LOOKUPS


@pytest.mark.parametrize(("most", "number", "drafted"), [(80, 5, [2, 4, 5, 5]), (10, 1, [1])], ids=["many", "one"])
def test_long_texts_are_indexed_over_several_rounds_and_one_that_is_longer_too(monkeypatch, most, number, drafted):
    monkeypatch.setattr(prompt_lookup, "MAX_INDEXED", most)
    sessions = [repeating(each) for each in range(1, number + 1)]  # 36 tokens each
    drafts = PromptLookup()
    assert [len(drafts.draft(wanting(*sessions))) for _ in drafted] == drafted


def test_a_text_longer_than_what_a_round_indexes_is_not_passed_over_for_ever(monkeypatch):
    monkeypatch.setattr(prompt_lookup, "MAX_INDEXED", len(AGAIN))
    short, long, longer = silent(1), repeating(2, prompt=(*AGAIN, *AGAIN)), repeating(3, prompt=(*AGAIN, *AGAIN))
    drafts = PromptLookup()
    assert [one.session_id for one, _ in drafts.draft(wanting(short, long, longer))] == [long.session_id]
    assert len(drafts.draft(wanting(short, long, longer))) == 2


def test_memory_is_bounded_the_longest_unused_goes_first_and_sessions_that_are_over_are_forgotten():
    drafts = PromptLookup(max_tokens=3 * len(AGAIN))
    first, *others = [repeating(number) for number in range(1, 5)]
    for session in (first, *others):
        drafts.draft(wanting(session))
    assert drafts._num_tokens == sum(map(len, drafts._texts.values())) <= 3 * len(AGAIN)
    assert set(drafts._texts) == {session.session_id for session in others}
    drafts, session, other = PromptLookup(), repeating(1), silent(2)
    drafts.draft(wanting(session, other))
    drafts.keep({session.session_id})
    assert (set(drafts._texts), drafts._misses) == ({session.session_id}, set())
    assert drafts._num_tokens == len(AGAIN)
    drafts.keep(set())
    assert drafts._num_tokens == 0


@pytest.mark.parametrize("kind", ["self", "own"])
def test_claims_that_proved_wrong_are_tested_by_the_targets_token_though_not_verified(kind: ClaimedOf):
    """Else no draft of this kind would ever be verified for this client again."""
    session = repeating() if kind == "self" else make_session()
    if kind == "own":
        session.drafts.take_own(DraftTokens((5, 6), probabilities.encode([0.9, 0.9]), "own"))
    known = session.client.calibration(kind)
    for code in [*range(256)] * 6:
        known.observe(bytes([code]), 0)
    ngrams = PromptLookup() if kind == "self" else None
    choice, pool = make_choice(cost=Linear(0.01, 0.01), prompt_lookup=ngrams), PagePool(64, 4)
    pool.extend(session.session_id, len(session.tokens) - 1)
    drafted = []
    for _ in range(90):
        [entry] = pack([session], pool, 8, 64, drafted=choice.choose([session], 1, NOW)).entries
        drafted.append(entry.num_drafted)
        if entry.num_drafted:
            break
        passed_over = choice.passed_over[session.session_id]
        pool.extend(session.session_id, 1)
        outcome = Outcome(session.session_id, passed_over.tokens[:1], 0, 0.0)
        for source, codes, num_accepted in commit(session, entry, outcome, pool, passed_over).claims:
            session.client.calibration(source).observe(codes, num_accepted)
        if kind == "own":
            session.drafts.take_own(passed_over)
    assert drafted[0] == 0
    assert drafted[-1] > 0
    assert entry.source == kind
