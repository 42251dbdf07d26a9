"""A request's own texts, its user's and shared ones draft for it, and never another user's."""

import pytest

from draft_node.core.drafts.ngrams import DEFAULT_LEAST_PROBABILITY, NgramDrafter, Ngrams
from draft_node.core.generation import Generation
from goodspeed.ngram.history import History
from goodspeed.wire.fields import Verification
from goodspeed.wire.messages import Ack, Draft, Sampling, Verdict
from tests.draft_node.core import scripted
from tests.draft_node.core.scripted import messages_of
from tests.fakes import make_welcome, replace_message, session_id

WELCOME = make_welcome(vocab_size=31, context_len=200)
PROMPT = tuple(range(1, 9))
TEXT = tuple(range(10, 30))
BEGUN = (*PROMPT, *TEXT[:3])


def make_request(number=1, **changes):
    return replace_message(Generation(session_id(number), PROMPT, Sampling(temperature=0.0), max_tokens=60), **changes)


def make_core(*, per_user=True, keeps=True, **options):
    core = scripted.make_core(ngrams=Ngrams(History(10_000, per_user), keeps), **options)
    core.receive(WELCOME, 0.0)
    return core


def say(core, number, base_len, tokens, **changes):
    """Gives a session these tokens; returns the messages that follow."""
    verdict = Verdict(session_id(number), 1, base_len, tuple(tokens), 0, 0)
    return messages_of(core.receive(replace_message(verdict, **changes), 1.0))


def write(core, user, number=1):
    """Writes a text of this user, to its end."""
    core.begin(make_request(number, user=user), 0.0)
    say(core, number, len(PROMPT), TEXT, finish_reason="stop")
    core.forget(session_id(number), 5.0)


def answer_to(core, user, number=2, **changes):
    """Returns what a second text of some user, which begins as the first does, answers to its first three tokens."""
    core.begin(make_request(number, user=user, **changes), 0.0)
    [answer] = say(core, number, len(PROMPT), TEXT[:3])
    return answer


@pytest.mark.parametrize(("per_user", "user"), [(True, "ann"), (False, "bob")])
def test_a_users_finished_text_drafts_for_their_next_one_and_without_users_for_everybodys(per_user, user):
    core = make_core(per_user=per_user)
    write(core, "ann")
    drafted = answer_to(core, user)
    assert isinstance(drafted, Draft)
    assert drafted.tokens == TEXT[3 : 3 + len(drafted.tokens)]


def test_counters_tell_that_nothing_of_another_user_drafted():
    """Every verdict is answered at once, since there is no model: with nothing, but for who wrote before."""
    core = make_core(num_parallel=None)
    write(core, "ann")
    for number, user in ((2, "bob"), (3, "ann")):
        core.begin(make_request(number, user=user), 0.0)
        [draft] = say(core, number, len(PROMPT), TEXT[:3], may_draft=4)
        base_len = len(PROMPT) + 3
        num = len(draft.tokens)
        counted = {"num_verified": num, "num_accepted": num, "source": "ngram" if num else None}
        say(core, number, base_len, TEXT[3 : 4 + num], **counted)
    assert core.sessions[session_id(2)].statistics.drafted == {}
    assert core.sessions[session_id(3)].statistics.drafted["ngram"] > 0
    assert core.statistics.accepted == core.sessions[session_id(3)].statistics.accepted


@pytest.mark.parametrize(
    ("keeps", "changes"),
    [(False, {}), (True, {"drafter": "model"}), (True, {"drafter": "none"}), (True, {"max_draft": 0})],
)
def test_where_nothing_is_kept_there_are_no_ngrams_nor_for_who_wants_none(keeps, changes):
    core = make_core(keeps=keeps)
    write(core, "ann")
    assert isinstance(answer_to(core, "ann", **changes), Ack)


def test_a_text_without_a_token_is_not_kept():
    core = make_core()
    core.begin(make_request(user="ann"), 0.0)
    core.forget(session_id(1), 5.0)
    assert core.ngrams.history.indexes("ann") == []


def drafted(length, theirs=0.0, own=DEFAULT_LEAST_PROBABILITY, text=BEGUN, **changes):
    """Returns what is drafted beyond a text when the history has the whole of it."""
    history = History(1000, per_user=False)
    history.add("", (*PROMPT, *TEXT))
    return NgramDrafter(make_request(**changes), history, own).draft(text, length, theirs).tokens


def test_a_draft_does_not_reach_the_end_of_the_text_or_hold_it():
    assert [drafted(9, max_tokens=most) for most in (6, 4, 3)] == [TEXT[3:5], (), ()]
    assert drafted(9, stop_ids=(TEXT[5],)) == TEXT[3:5]
    assert TEXT[5] not in drafted(9, stop_ids=(TEXT[5],), min_tokens=60)


def test_the_verify_nodes_least_probability_end_a_draft_or_else_the_nodes_own():
    lengths = [len(drafted(32, theirs, own)) for own, theirs in ((0.6, 0.0), (0.6, 0.01), (0.01, 0.6), (0.01, 1.0))]
    assert lengths[1] > lengths[0] == lengths[2] > lengths[3] == 0


def test_under_the_ratio_rule_only_the_text_itself_drafts():
    """A text of the same seed is not independent of the noise that decides on this one."""
    assert drafted(4, verification="ratio") == ()
    assert drafted(4, text=(*PROMPT, *PROMPT[:3]), verification="ratio")[:2] == PROMPT[3:5]


def test_under_the_ratio_rule_the_likeliest_token_is_drafted_whatever_the_noise():
    history = History(1000, per_user=False)
    text = (*PROMPT, *3 * TEXT[:6], *TEXT[:3], 99, 98, *TEXT[:3])
    found: dict[Verification, set[tuple[int, ...]]] = {"match": set(), "ratio": set()}
    for seed in range(30):
        for rule, tokens in found.items():
            request = make_request(verification=rule, sampling=Sampling(1.0, seed=seed))
            tokens |= {NgramDrafter(request, history, 0.01).draft(text, 1).tokens}
    assert found == {"match": {(TEXT[3],), (99,)}, "ratio": {(TEXT[3],)}}


def test_a_draft_ends_before_a_token_that_the_target_lacks():
    """A history has what another target wrote, which may have had more tokens."""
    lacking = (*TEXT[:5], WELCOME.vocab_size, *TEXT[5:])
    core = make_core()
    core.ngrams.history.add("", lacking)
    assert answer_to(core, "").tokens == TEXT[3:5]
