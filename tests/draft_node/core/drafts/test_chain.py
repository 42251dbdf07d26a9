"""What a draft model drafts beyond a text: how far, for how long, and what the text does to it."""

from msgspec.structs import replace

from draft_node.core.actions import Proposed, Request
from draft_node.core.drafts.chain import AT_ONCE, Chain
from draft_node.core.drafts.ngrams import FLOOR
from goodspeed.ngram.drafting import Continuation
from goodspeed.wire.messages import Sampling

ID = b"0123456789abcdef"
PROMPT = (1, 2, 3)
REQUEST = Request(ID, PROMPT, Sampling(), max_tokens=50, stop_ids=(0,))


def drafted(*tokens, probabilities=0.9):
    return Proposed(ID, 1, 0, tokens, probabilities=(probabilities,) * len(tokens))


def begun(request=REQUEST, num_parallel=1):
    chain = Chain(request, num_parallel)
    chain.begin(len(PROMPT))
    return chain


def test_it_grows_by_what_the_model_drafts():
    chain = begun()
    assert chain.ask(PROMPT, 20, 0.0).tokens == PROMPT
    assert chain.extend(drafted(4, 5))
    assert chain.rest(PROMPT) == Continuation((4, 5), (0.9, 0.9))
    assert chain.ask(PROMPT, 20, 0.0).tokens == (*PROMPT, 4, 5)
    assert chain.extend(drafted(6))
    assert chain.rest((*PROMPT, 4)) == Continuation((5, 6), (0.9, 0.9))


def test_the_model_is_asked_for_some_tokens_at_a_time_up_to_what_is_permitted():
    chain = begun()
    assert chain.ask(PROMPT, AT_ONCE + 1, 0.0).length == AT_ONCE
    assert chain.ask(PROMPT, AT_ONCE + 1, 0.0) is None, "it drafts already"
    chain.extend(drafted(*range(4, 4 + AT_ONCE)))
    assert chain.ask(PROMPT, AT_ONCE + 1, 0.0).length == 1
    chain.extend(drafted(20))
    assert chain.ask(PROMPT, AT_ONCE + 1, 0.0) is None
    assert chain.ask((*PROMPT, 4), AT_ONCE + 1, 0.0).length == 1, "the text has grown"
    assert begun().ask(PROMPT, 0, 0.0) is None


def test_a_model_that_drafts_in_parallel_is_asked_for_a_whole_pass():
    assert begun(num_parallel=AT_ONCE + 4).ask(PROMPT, 40, 0.0).length == AT_ONCE + 4
    assert begun(num_parallel=AT_ONCE + 4).ask(PROMPT, AT_ONCE + 1, 0.0).length == AT_ONCE + 1
    assert begun(num_parallel=AT_ONCE - 1).ask(PROMPT, 40, 0.0).length == AT_ONCE


def test_nothing_is_drafted_beyond_the_longest_text():
    chain = begun(replace(REQUEST, max_tokens=3))
    assert chain.ask(PROMPT, 20, 0.0).length == 2, "the round itself brings the last token"
    assert begun(replace(REQUEST, max_tokens=1)).ask(PROMPT, 20, 0.0) is None


def test_it_ends_where_all_of_it_is_too_unlikely():
    chain = begun()
    assert chain.ask(PROMPT, 20, 0.5).least_probability == 0.5
    chain.extend(drafted(4, probabilities=0.8))
    assert chain.ask(PROMPT, 20, 0.5).least_probability == 0.5 / 0.8, "the next tokens come after those"
    chain.extend(drafted(5, probabilities=0.5))
    assert chain.ask(PROMPT, 20, 0.5) is None
    assert chain.ask((*PROMPT, 4), 20, 0.5) is not None, "the text has come true so far"
    assert begun().ask(PROMPT, 20, 0.0).least_probability == FLOOR


def test_a_text_that_goes_otherwise_leaves_it():
    chain = begun()
    chain.ask(PROMPT, 20, 0.0)
    chain.extend(drafted(4, 5))
    assert chain.follows((*PROMPT, 4))
    assert chain.follows((*PROMPT, 4, 5))
    assert not chain.follows((*PROMPT, 9))
    assert chain.rest((*PROMPT, 9)) == Continuation()
    chain.begin(len(PROMPT) + 1)
    assert chain.rest((*PROMPT, 9)) == Continuation()
    assert chain.ask((*PROMPT, 9), 20, 0.0).tokens == (*PROMPT, 9)


def test_a_text_that_grows_beyond_it_leaves_it_unless_the_model_drafts_on():
    chain = begun()
    chain.ask(PROMPT, 20, 0.0)
    chain.extend(drafted(4))
    assert not chain.follows((*PROMPT, 4, 5))
    chain.ask(PROMPT, 20, 0.0)
    assert chain.follows((*PROMPT, 4, 5)), "perhaps it drafts just that"
    chain.extend(drafted(5, 6))
    assert chain.rest((*PROMPT, 4, 5)).tokens == (6,)
    assert not chain.follows((*PROMPT, 4, 7))


def test_a_text_that_has_overtaken_all_that_was_asked_for_leaves_it():
    chain = begun()
    chain.ask(PROMPT, 2, 0.0)
    assert chain.follows((*PROMPT, 4, 5))
    assert not chain.follows((*PROMPT, 4, 5, 6)), "what is made now cannot reach beyond the text"


def test_what_was_not_asked_for_is_no_part_of_it():
    chain = begun()
    assert not chain.extend(drafted(4))
    chain.ask(PROMPT, 20, 0.0)
    chain.begin(len(PROMPT))
    assert not chain.extend(drafted(4))
    assert chain.rest(PROMPT) == Continuation()
