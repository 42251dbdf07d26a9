"""Links and verify nodes by hand: which are known, which link is the home, and where sessions wait and go."""

from random import Random

import pytest

from draft_node.core.links import GRACE_S, IDLE_S, JITTER_S, MAX_TRIED, REDIRECT_S, TRY_S, Links
from draft_node.core.verify_nodes import Address, VerifyNodes
from goodspeed.wire.handshake import Sibling
from tests.draft_node.core.scripted import make_link, welcome_of
from tests.fakes import session_id

A, B, C = (Address(f"tcp://{name}:1") for name in "abc")
ONE, TWO = session_id(1), session_id(2)


def sibling(address, **changes):
    return Sibling(address.endpoint, "", **changes)


def make(*addresses):
    return Links(make_link(), addresses or (A, B), Random(1))


def arrive(links, number, now=0.0, *, boot=None, target="t"):
    """The link's verify node answers the Hello."""
    said = welcome_of(boot or links.address(number).endpoint[6], target)
    links[number].heard(said, now)
    return links.welcomed(number, said)


def connected(*addresses):
    """A link to each of the addresses, by their order."""
    links = make(*addresses)
    arrive(links, 0)
    for address in addresses[1:]:
        arrive(links, links._make(address, 0.0))
    return links


def test_candidates_are_those_with_the_target_that_do_not_stop_the_least_waited_for_first():
    nodes = VerifyNodes([A], Random(1))
    nodes.learn([sibling(one, target_fingerprint="t", expected_s=wait) for one, wait in ((B, 9.0), (C, 1.0))])
    assert nodes.candidates("t") == [C, B, A]
    nodes.learn([sibling(B, target_fingerprint="u"), sibling(C, is_draining=True)])
    assert nodes.candidates("t") == [A]
    assert set(nodes.candidates(None)) == {A, B}
    nodes.exclude(A)
    assert nodes.candidates("t") == []


def test_equals_come_in_random_order():
    assert {tuple(VerifyNodes([A, B], Random(seed)).candidates(None)) for seed in range(20)} == {(A, B), (B, A)}


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_redirect_moves_the_home_later_unless_one_to_a_verify_node_that_is_there_replaces_it(is_replaced):
    links = connected(A, C)
    links.verify_nodes.learn([sibling(B), sibling(C)])
    made = links.send(ONE, B, 1.0, moves_home=True)
    assert (made, links.home) == (2, 0)
    if is_replaced:
        assert links.send(TWO, C, 1.1, moves_home=True) is None
    arrive(links, made, 1.5)
    assert links.home == (1 if is_replaced else made)


def test_a_welcome_is_believed_before_what_others_tell_of_it():
    links = connected(A, B)
    links.verify_nodes.learn([sibling(A, target_fingerprint="u"), sibling(B, target_fingerprint="u")])
    assert links.place(ONE, "t", 1.0) == 0
    links.verify_nodes.learn([sibling(A, target_fingerprint="t")])
    arrive(links, 0, 2.0, boot="a2", target="u")
    assert links.place(TWO, "t", 2.0) == 1


def test_a_session_whose_target_nobody_may_have_goes_home_and_one_that_somebody_may_have_waits():
    links = make(A, B)
    arrive(links, 0, target="u")
    assert links.place(ONE, "t", 1.0) is None, "B is not known yet"
    links.verify_nodes.learn([sibling(B, target_fingerprint="u")])
    assert links.place(ONE, "t", 1.0) == 0


def test_who_is_silent_for_too_long_is_not_waited_for():
    links = make(A, B)
    arrive(links, 0, target="u")
    links._make(B, 0.0)
    assert links.place(ONE, "t", REDIRECT_S - 0.1) is None
    assert links.place(ONE, "t", REDIRECT_S + 0.1) == 0


def test_nobody_is_tried_while_the_home_is_there_and_has_what_is_wanted():
    links = make(A, B)
    arrive(links, 0)
    assert links.next_to_try([None, "t"], 5.0) is None
    assert links.next_to_try(["u"], 5.0) == 1


def test_while_the_home_is_away_also_those_are_tried_that_lack_the_target_that_is_waited_for():
    """Else a text whose target nobody has any more would wait for ever, and not be told."""
    links = make(A)
    arrive(links, 0)
    links.verify_nodes.learn([sibling(A, target_fingerprint="t"), sibling(B, target_fingerprint="u")])
    links[0].broke(1.0)
    links.lost(0, 1.0)
    assert links.address(links.next_to_try(["t"], 1.1 + GRACE_S + JITTER_S)) == B


def test_links_without_sessions_are_given_up_and_neither_the_home_nor_those_in_use():
    links = connected(A, B, C)
    links.send(ONE, B, 0.0, moves_home=False)
    assert links.useless(0.0) == []
    assert links.useless(IDLE_S + 0.1) == [2]
    links.drop(2)
    links.forget(ONE)
    assert links.useless(IDLE_S + 0.2) == []
    assert links.useless(2 * IDLE_S + 0.3) == [1]


def test_a_home_to_be_that_never_answers_is_given_up():
    links = connected(A)
    links.verify_nodes.learn([sibling(B)])
    made = links.send(ONE, B, 0.0, moves_home=True)
    assert links.useless(REDIRECT_S) == []
    assert links.place(ONE, "t", REDIRECT_S + 0.1) == links.home
    assert links.useless(REDIRECT_S + IDLE_S) == []
    assert links.useless(REDIRECT_S + IDLE_S + 0.1) == [made]


def test_too_many_that_do_not_answer_are_given_up_the_first_of_them_first():
    links = make(*(Address(f"tcp://{number}:1") for number in range(8)))
    for number in range(1, 8):
        links._make(links.verify_nodes.addresses()[number], 0.0)
    assert links.useless(0.0) == [1, 2, 3]
    assert len(list(links)) - 1 - 3 == MAX_TRIED


def test_a_session_whose_target_is_gone_waits_no_longer_than_all_others_are_tried():
    """There are more addresses than links that are tried at once; the first ones are given up for the last."""
    others = [Address(f"tcp://{number}:1") for number in range(MAX_TRIED + 3)]
    links = make(A, *others)
    arrive(links, 0, target="new")
    links.place(ONE, "new", 0.0)
    now, waits = 0.0, True
    while waits and now < 60.0:
        now += 0.1
        waits = links.place(TWO, "old", now) is None
        links.next_to_try(["old"] if waits else [], now)
        for number in links.useless(now):
            links.drop(number)
    assert not waits
    assert links.on(TWO) == links.home
    assert now > len(others) * TRY_S
