"""The one stream of drafts of a session: what goes up, when an Ack says as much, and when a draft is complete."""

import pytest
from msgspec.structs import replace

from draft_node.core.actions import Deliver, Send
from draft_node.core.drafts.draft_stream import ENOUGH, MAX_SILENT, NGRAM_LENGTH, DraftStream
from draft_node.core.drafts.draft_tree import AT_ONCE
from draft_node.core.drafts.resting import LEAST_TRIAL, REST, Resting
from draft_node.core.generation import Generation
from draft_node.core.session import RESEND_S, Session
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.drafting.tree import Nodes
from goodspeed.exact import proposals
from goodspeed.exact.proposal_bytes import certain
from goodspeed.wire import probabilities
from goodspeed.wire.messages import Ack, Draft, Sampling, Verdict
from tests.draft_node.core.scripted import ID, PROMPT, ScriptedDrafter
from tests.fakes import likeliest_path, make_welcome

TEXT = (*PROMPT, *range(10, 110))
REQUEST = Generation(ID, PROMPT, Sampling(seed=5), max_tokens=100)
RATIO = replace(REQUEST, verification="ratio")
NGRAM = replace(REQUEST, drafter="ngram")
BRANCHING = {"probabilities": (0.5, 0.5, 0.2, 0.9), "parents": (-1, 0, -1, 2)}


def verdict(base_len, *tokens, may_draft=8, **changes):
    return replace(Verdict(ID, 1, base_len, tokens, 0, 0, may_draft), **changes)


def begin(request=REQUEST, *, text=None, chance=0.9, welcome=None, **options):
    """A session that is opened. text: what its index expects; None: it has none."""
    index = ScriptedDrafter(request, text=text, probabilities=chance) if text is not None else None
    session = Session(request, ngrams=index, **options)
    session.connect(0.0, welcome or make_welcome())
    return session


def answer(wanted, *tokens, chance=0.9, **changes):
    return replace(Proposed(ID, wanted.epoch, wanted.round, tokens, probabilities=(chance,) * len(tokens)), **changes)


def draft(base_len, *tokens, chance=0.9, source="model", complete=False, **changes):
    told = probabilities.encode([chance] * len(tokens))
    return Send(replace(Draft(ID, 1, base_len, tokens, told, source, None, complete), **changes))


def ack(base_len):
    return Send(Ack(ID, 1, base_len))


def drafting(session, **changes):
    """The first verdict, after which the draft model is at work; returns what it was asked for."""
    delivered, acknowledged, wanted = session.receive(verdict(3, 10, **changes), 1.0)
    assert (delivered, acknowledged) == (Deliver((10,)), ack(4))
    return wanted


# -- the draft model's chain -------------------------------------------------------------------------------------------


def test_the_draft_model_drafts_on_from_the_text_and_what_it_has_goes_up():
    session = begin()
    wanted = drafting(session, least_probability=probabilities.code(0.25))
    assert wanted == Propose(
        REQUEST, 1, 1, (*PROMPT, 10), AT_ONCE, least_probability=0.25, max_depth=8, wants_alternatives=True
    )
    sent, wanted = session.proposed(answer(wanted, 11, 12))
    assert sent == draft(4, 11, 12)
    assert (wanted.tokens, wanted.tree) == ((*PROMPT, 10), Nodes((11, 12), (0.9, 0.9), (-1, 0)))


@pytest.mark.parametrize("trees", [True, False])
def test_alternatives_are_drafted_for_a_verify_node_that_verifies_trees(trees):
    assert drafting(begin(welcome=make_welcome(trees=trees))).wants_alternatives == trees


def test_while_the_text_follows_it_the_draft_model_is_not_disturbed():
    session = begin()
    _, wanted = session.proposed(answer(drafting(session), 11, 12))
    assert session.receive(verdict(4, 11), 1.2) == [Deliver((11,)), ack(5)], "the rest is known there"
    sent, _ = session.proposed(answer(wanted, 13))
    assert sent == draft(5, 12, 13)


def test_a_text_that_goes_otherwise_is_drafted_for_anew_and_an_old_draft_is_of_no_use():
    session = begin()
    _, old = session.proposed(answer(drafting(session), 11, 12))
    _, acknowledged, wanted = session.receive(verdict(4, 20), 1.2)
    assert acknowledged == ack(5)
    assert wanted.tokens == (*PROMPT, 10, 20)
    assert session.proposed(answer(old, 13)) == []
    assert session.proposed(answer(wanted, 21))[0] == draft(5, 21)


def test_a_chain_is_told_of_again_when_it_is_twice_as_long():
    session = begin()
    sent, wanted = session.proposed(answer(drafting(session), 11, 12))
    assert sent == draft(4, 11, 12)
    [wanted] = session.proposed(answer(wanted, 13))
    assert isinstance(wanted, Propose), "each message takes both nodes' time"
    assert session.proposed(answer(wanted, 14))[0] == draft(4, 11, 12, 13, 14)


def test_what_may_not_be_drafted_any_more_does_not_go_up():
    session = begin()
    wanted = drafting(session)
    session.receive(verdict(4, 11, may_draft=0), 1.1)
    assert session.proposed(answer(wanted, 11, 12, 13)) == []
    assert session.receive(verdict(5, 12, may_draft=0), 1.3)[1:] == [ack(6)]


# -- complete ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verification", ["match", "ratio"])
def test_a_model_that_may_not_draft_reads_no_prompt_until_it_may(verification):
    request, resting = replace(REQUEST, verification=verification), Resting()
    other, stream = (DraftStream.of(request, None, resting, 1) for _ in range(2))
    assert other.begin(PROMPT)
    other.answer(verdict(3, 10, may_draft=0), TEXT[:4])
    assert bool(stream.begin(PROMPT)) == (verification == "ratio")  # under which rounds wait for it
    _, *asked = stream.answer(verdict(3, 10), TEXT[:4])
    assert [one.tokens for one in asked] == [TEXT[:4]]


@pytest.mark.parametrize("changes", [{"max_draft": 0}, {"drafter": "ngram"}, {"max_tokens": 2}])
def test_a_text_that_no_model_drafts_for_keeps_it_from_no_other_prompt(changes):
    resting = Resting()
    DraftStream.of(replace(REQUEST, **changes), None, resting, 1).answer(verdict(3, 10, may_draft=0), TEXT[:4])
    assert DraftStream.of(REQUEST, None, resting, 1).begin(PROMPT)


def test_a_chain_is_complete_where_no_more_may_be_drafted_however_little_was_added():
    session = begin()
    sent, wanted = session.proposed(answer(drafting(session, may_draft=3), 11, 12))
    assert (sent, wanted.length) == (draft(4, 11, 12), 1)
    assert session.proposed(answer(wanted, 13)) == [draft(4, 11, 12, 13, complete=True)]


def test_one_that_the_model_doubts_is_complete_and_one_that_comes_to_the_texts_end():
    session = begin()
    wanted = drafting(session, least_probability=probabilities.code(0.5))
    assert session.proposed(answer(wanted, 11, 12, chance=0.6)) == [draft(4, 11, 12, chance=0.6, complete=True)]
    session = begin(replace(REQUEST, stop_ids=(0,)))
    assert session.proposed(answer(drafting(session), 11, 0)) == [draft(4, 11, complete=True)]


def test_one_that_has_nothing_says_so_and_is_asked_again_with_the_next_verdict():
    session = begin()
    assert session.proposed(answer(drafting(session))) == [draft(4, complete=True, source="ngram")]
    assert session.receive(verdict(4, 11), 1.2)[-1].tokens == (*PROMPT, 10, 11)


def test_what_is_left_of_another_is_completed_where_nothing_is_added():
    session = begin()
    _, wanted = session.proposed(answer(drafting(session), 11, 12, 13))
    session.receive(verdict(4, 11, may_draft=0), 1.2)
    assert session.proposed(answer(wanted)) == [], "nobody waits for it"
    session.resting.is_resting = True
    assert session.receive(verdict(5, 12), 1.4)[1:] == [draft(6, 13, complete=True)]


def test_what_is_left_of_a_complete_draft_is_acknowledged_whatever_is_permitted():
    session = begin()
    _, wanted = session.proposed(answer(drafting(session, may_draft=5), 11, 12, 13, 14))
    assert wanted.length == 1
    assert session.proposed(answer(wanted, 15)) == [draft(4, 11, 12, 13, 14, 15, complete=True)]
    _, acknowledged, wanted = session.receive(verdict(4, 11, may_draft=6), 1.3)
    assert (acknowledged, wanted.length) == (ack(5), 2)
    assert session.receive(verdict(5, 12, may_draft=2), 1.4)[1:] == [ack(6)], "13 to 15 are known there as complete"


@pytest.mark.parametrize(
    ("request_", "options"),
    [
        (REQUEST, {"num_parallel": None}),
        (REQUEST, {"resting": Resting(is_resting=True)}),
        (NGRAM, {}),
        (RATIO, {"num_parallel": None}),
        (replace(RATIO, drafter="ngram"), {"num_parallel": None}),
    ],
)
def test_where_nothing_drafts_an_empty_draft_says_so_in_place_of_the_ack(request_, options):
    session = begin(request_, **options)
    assert session.receive(verdict(3, 10), 1.0) == [Deliver((10,)), draft(4, complete=True, source="ngram")]
    assert session.receive(verdict(4, 11), 1.1) == [Deliver((11,)), draft(5, complete=True, source="ngram")]
    assert session.receive(verdict(5, 12, may_draft=0), 1.2) == [Deliver((12,)), ack(6)]


# -- the index ---------------------------------------------------------------------------------------------------------


def by_index(position, length=NGRAM_LENGTH, *, complete=True):
    return draft(position, *TEXT[position : position + length], source="ngram", complete=complete)


def follow(session, position, number=1, **changes):
    """Gives the session so many tokens of TEXT at a position; returns what it answers."""
    [_, answered] = session.receive(verdict(position, *TEXT[position : position + number], **changes), 1.0)
    return answered


@pytest.mark.parametrize("may_draft", [0, 2])
def test_what_the_index_expects_goes_up_in_place_of_the_ack_whatever_is_permitted(may_draft):
    session = begin(text=TEXT, num_parallel=None)
    assert session.receive(verdict(3, 10, may_draft=may_draft), 1.0) == [Deliver((10,)), by_index(4)]


def test_one_that_reaches_far_enough_is_followed_by_acks_and_the_index_is_not_asked():
    session = begin(NGRAM, text=TEXT)
    follow(session, 3)
    far = 4 + NGRAM_LENGTH - ENOUGH
    for position in range(4, far):
        assert follow(session, position) == ack(position + 1)
    assert len(session.ngrams.asked) == 1
    assert follow(session, far) == by_index(far + 1)


def test_a_short_one_is_not_said_again():
    session = begin(NGRAM, text=TEXT[:7])
    assert follow(session, 3) == by_index(4, 3)
    assert follow(session, 4) == ack(5)
    assert len(session.ngrams.asked) == 2
    session.ngrams.text = TEXT[:8]
    assert follow(session, 5) == by_index(6, 2), "one token more than is known"
    session.ngrams.text = TEXT[:7]
    assert follow(session, 6) == ack(7), "nothing is expected: what is known there stays so"


def test_it_keeps_to_the_draft_nodes_own_cap_and_to_the_verify_nodes_least_probability():
    session = begin(replace(NGRAM, max_draft=5), text=TEXT)
    assert follow(session, 3, least_probability=probabilities.code(0.5)) == by_index(4, 5)
    assert session.ngrams.asked == [(4, 5, 0.5)]


def test_it_is_repeated_after_a_silence_alone():
    session = begin(NGRAM, text=TEXT)
    follow(session, 3)
    assert session.tick(1.0 + RESEND_S) == [ack(4), by_index(4)]
    assert session.receive(verdict(3, 10), 3.0) == [], "a verdict that comes again"
    assert session.receive(verdict(6, 13), 3.0) == [ack(4)], "a gap"


def test_of_model_and_index_the_one_that_is_expected_to_bring_more_goes_up():
    session = begin(text=(*PROMPT, 10, 11, 12, 13), chance=0.5)
    _, first, wanted = session.receive(verdict(3, 10), 1.0)
    assert first == draft(4, 11, 12, 13, chance=0.5, source="ngram"), "the model is at work: not complete"
    unheard = session.proposed(answer(wanted, 21, chance=0.6))
    assert [type(action) for action in unheard] == [Propose], "0.875 tokens are expected of the index"
    assert session.proposed(answer(unheard[0], 22, chance=0.6))[0] == draft(4, 21, 22, chance=0.6)
    assert len(session.ngrams.asked) == 1, "the index is asked once about a text"


# -- the ratio rule ----------------------------------------------------------------------------------------------------


def test_a_ratio_draft_is_asked_for_once_and_whole_and_goes_up_complete():
    session = begin(RATIO)
    wanted = drafting(session, may_draft=11, least_probability=probabilities.code(0.9))
    assert wanted == Propose(RATIO, 1, 1, (*PROMPT, 10), 11, max_depth=11), "no probabilities cut it"
    assert session.proposed(answer(wanted, *range(11, 22), probabilities=None, proposal=b"p")) == [
        draft(4, *range(11, 22), complete=True, probabilities=b"", proposal=b"p")
    ]


@pytest.mark.parametrize("tokens", [(0, 0, 0, 0), (11, 0, 12, 13)])
def test_its_length_does_not_depend_on_its_tokens(tokens):
    """Neither on what they are nor, being cut at an end, on what they would do to the text."""
    session = begin(replace(RATIO, stop_ids=(0,)))
    wanted = drafting(session, may_draft=4)
    [sent] = session.proposed(answer(wanted, *tokens, probabilities=None, proposal=b"p"))
    assert sent.message.tokens == tokens


@pytest.mark.parametrize("tokens", [(11,), (11, 12), (20,)])
def test_after_each_verdict_a_new_one_is_drafted_with_noise_of_its_own(tokens):
    """However much of the old one came true: nothing of it is sent again."""
    session = begin(RATIO)
    first = drafting(session, may_draft=4)
    session.proposed(answer(first, 11, 12, 13, 14, probabilities=None, proposal=b"p"))
    _, acknowledged, wanted = session.receive(verdict(4, *tokens, may_draft=4), 1.2)
    assert acknowledged == ack(4 + len(tokens))
    assert (wanted.tokens, wanted.length, wanted.tree) == ((*PROMPT, 10, *tokens), 4, Nodes())
    assert wanted.round > first.round
    [sent] = session.proposed(answer(wanted, 7, 7, 7, 7, probabilities=None, proposal=b"q"))
    assert sent.message.tokens == (7, 7, 7, 7)


def test_one_that_a_verdict_overtakes_is_of_no_use():
    session = begin(RATIO)
    old = drafting(session, may_draft=4)
    *_, wanted = session.receive(verdict(4, 11, may_draft=4), 1.1)
    assert session.proposed(answer(old, 11, 12, proposal=b"p")) == []
    assert session.proposed(answer(wanted, 12, proposal=b"q"))[0].message.base_len == 5
    session.receive(verdict(5, 12, may_draft=0), 1.4)
    assert session.proposed(answer(wanted, 12, proposal=b"q")) == [], "nothing may be drafted"


def test_a_model_that_fails_a_ratio_draft_completes_it_empty_and_so_does_the_longest_text():
    session = begin(RATIO)
    assert session.proposed(answer(drafting(session))) == [draft(4, complete=True)]
    session = begin(replace(RATIO, max_tokens=2))
    assert session.receive(verdict(3, 10), 1.0)[1:] == [draft(4, complete=True, source="ngram")]


@pytest.mark.parametrize("num_parallel", [1, None])
def test_tokens_of_the_index_that_are_worth_it_go_up_at_once_as_certain(num_parallel):
    [_, sent] = begin(RATIO, text=TEXT, num_parallel=num_parallel).receive(verdict(3, 10, may_draft=3), 1.0)
    tokens = TEXT[4:7]
    assert sent == draft(4, *tokens, complete=True, source="ngram", probabilities=b"", proposal=certain(tokens))
    probs = proposals.decode(sent.message.proposal, 3, 40, tokens)
    assert [row.nonzero().flatten().tolist() for row in probs] == [[token] for token in tokens]


# -- resting -----------------------------------------------------------------------------------------------------------


def late(session, num_tokens, start=3, source=None):
    """The text grows by one token after the other, and the draft model answers each time when it is too late."""
    wanted = None
    for length in range(start, start + num_tokens):
        accepted = {"num_verified": 1, "num_accepted": 1} if source else {}
        *_, last = session.receive(verdict(length, 50 + length, source=source, **accepted), 1.0)
        if wanted is not None:
            session.proposed(answer(wanted, 7))
        wanted = last if isinstance(last, Propose) else wanted
    return last


def test_a_model_whose_tokens_come_too_late_is_not_asked_until_it_is_tried_again():
    resting = Resting()
    session = begin(replace(REQUEST, max_tokens=5000), resting=resting)
    length = len(PROMPT) + LEAST_TRIAL + 2  # before the first verdict nothing is permitted, and then it answers once
    assert late(session, LEAST_TRIAL + 2) == ack(length), "nothing is asked of the model, and it is still at work"
    assert resting.is_resting
    last = late(session, REST, start=length)
    assert not resting.is_resting
    assert (last.least_probability, len(last.tokens)) == (probabilities.FLOOR, length + REST)


def test_a_model_that_is_still_reading_is_not_judged_unless_it_reads_for_long():
    resting = Resting()
    session = begin(replace(REQUEST, max_tokens=5000), resting=resting)
    most = 3 + MAX_SILENT + LEAST_TRIAL
    for length in range(3, most + 2):
        assert not resting.is_resting or length > most
        session.receive(verdict(length, 50 + length), 1.0)
    assert resting.is_resting


@pytest.mark.parametrize(("request_", "may_draft"), [(REQUEST, 0), (RATIO, 8)])
def test_where_nothing_is_permitted_or_rounds_wait_for_it_the_model_is_not_judged(request_, may_draft):
    resting = Resting()
    session = begin(replace(request_, max_tokens=5000), resting=resting)
    for base_len in range(3, 3 + 3 * LEAST_TRIAL):
        session.receive(verdict(base_len, 20, may_draft=may_draft), 1.0)
        assert not resting.is_resting


# -- trees -------------------------------------------------------------------------------------------------------------


def branching(session):
    """Has the draft model draft 11 and 12, or else 21 and behind it 22; returns what the session does."""
    return session.proposed(answer(drafting(session), 11, 12, 21, 22, **BRANCHING))


def test_alternatives_and_what_follows_them_go_up_beside_the_chain():
    sent, wanted = branching(begin())
    claimed = probabilities.encode(BRANCHING["probabilities"])
    assert sent == Send(Draft(ID, 1, 4, (11, 12, 21, 22), claimed, "model", b"\x00\x01\x00\x03"))
    assert (wanted.tree.tokens, likeliest_path(wanted)) == ((11, 12, 21, 22), (11, 12))


def test_a_text_that_takes_an_alternative_is_drafted_for_behind_it():
    """The verify node has the rest already."""
    session = begin()
    _, old = branching(session)
    _, acknowledged, wanted = session.receive(verdict(4, 21, num_verified=4, num_accepted=1, source="model"), 1.2)
    assert (acknowledged, wanted.tokens, likeliest_path(wanted)) == (ack(5), (*PROMPT, 10, 21), (22,))
    assert session.proposed(answer(old, 13)) == [], "it was made for the other way"
    assert session.proposed(answer(wanted, 23))[0] == draft(5, 22, 23)


def test_the_end_of_a_text_is_no_alternative():
    """The target ends it itself; nothing follows that."""
    session = begin(replace(REQUEST, stop_ids=(0,)))
    answered = answer(drafting(session), 11, 0, probabilities=(0.5, 0.2), parents=(-1, -1))
    assert session.proposed(answered)[0] == draft(4, 11, chance=0.5)
