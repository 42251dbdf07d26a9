"""A draft model whose tokens come too late rests, and is tried again."""

import pytest

from draft_node.core.drafts.resting import LEAST_SHARE, LEAST_TRIAL, MAX_REST, REST, TRIAL, Resting


def write(resting, num_tokens, num_accepted=0, texts=(b"one",)):
    """The texts grow in turns by one token; the last ones are the draft model's."""
    for place in range(num_tokens):
        resting.observe(texts[place % len(texts)], 1, int(place >= num_tokens - num_accepted))


def test_a_model_of_which_nothing_is_used_rests_ever_longer_and_is_tried_in_between():
    resting = Resting()
    for rest in (REST, 2 * REST, 4 * REST, MAX_REST, MAX_REST, MAX_REST):
        write(resting, LEAST_TRIAL)
        for _ in range(rest):
            assert resting.is_resting
            write(resting, 1)
        assert not resting.is_resting


def test_a_model_that_is_used_goes_on_and_its_next_rest_is_short():
    resting = Resting()
    write(resting, LEAST_TRIAL)
    write(resting, REST)
    write(resting, LEAST_TRIAL)  # the next rest would be twice as long
    write(resting, 2 * REST)
    write(resting, LEAST_TRIAL, num_accepted=LEAST_TRIAL // 2)
    assert not resting.is_resting
    write(resting, LEAST_TRIAL)
    write(resting, REST)
    assert not resting.is_resting, "it has rested for the shortest time"


@pytest.mark.parametrize(("num_accepted", "rests"), [(15, True), (16, False)])
def test_the_share_of_the_texts_decides(num_accepted, rests):
    resting = Resting()
    write(resting, LEAST_TRIAL, num_accepted)
    assert (num_accepted < LEAST_SHARE * LEAST_TRIAL) is rests
    assert resting.is_resting is rests


def test_texts_that_are_over_do_not_make_the_next_trial_longer():
    resting = Resting()
    write(resting, 30 * TRIAL, texts=[bytes([number]) for number in range(30)])
    write(resting, REST)
    assert not resting.is_resting
    write(resting, LEAST_TRIAL)
    assert resting.is_resting


@pytest.mark.parametrize("num_tokens", [8, 60])
def test_many_short_texts_end_a_rest_and_a_trial_as_one_long_text_does(num_tokens):
    resting, ends = Resting(), list[int]()
    for number in range(200):
        was_resting = resting.is_resting
        write(resting, num_tokens, texts=[number.to_bytes(2, "big")])
        resting.forget(number.to_bytes(2, "big"))
        if resting.is_resting != was_resting:
            ends.append((number + 1) * num_tokens)
    assert ends[0] - LEAST_TRIAL < num_tokens
    assert ends[1] - ends[0] - REST < num_tokens
    assert len(resting._texts) == 0
