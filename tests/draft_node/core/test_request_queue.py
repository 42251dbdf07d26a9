"""A draft node gives places in turn, with room at the verify node and without."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draft_node.core.actions import Send
from draft_node.core.generation import Generation
from draft_node.core.request_queue import LATER_S
from draft_node.core.session import State
from goodspeed.wire.handshake import Heartbeat
from goodspeed.wire.messages import Close, OpenSession, Refusal, Sampling, Verdict
from tests.draft_node.core.scripted import make_core, messages_of
from tests.fakes import Desk, make_welcome, session_id

WELCOME = make_welcome(context_len=1000)
MOST = {"begin": 1, "end": 49, "rooms": 5, "prompt rooms": 2}
EVENTS: dict[str, Any] = {kind: st.integers(0, most) for kind, most in MOST.items()}
EVENTS["wait"] = st.sampled_from([0.1, 0.5, 2.0])
STEPS = st.lists(st.one_of(*(st.tuples(st.just(kind), values) for kind, values in EVENTS.items())), max_size=30)


class Node:
    """A core on a clock of its own, in front of a verify node with so many rooms."""

    def __init__(self, num_slots=2, num_rooms=100, connected=True, **options):
        self.core = make_core(1e9, max_sessions=num_slots, num_parallel=None, **options)
        self.now = 0.0
        self.num_rooms = num_rooms
        self.num_prompt_rooms = 100  # for texts with prompt logprobs
        self.prompts: set[int] = set()  # texts with them
        self.rooms: list[int] = []  # the sessions that are open there
        self.promised: set[int] = set()  # of these
        self.asked: list[int] = []  # the sessions that were ever opened or refused there, in order
        if connected:
            self.carry_out(self.core.receive(WELCOME, 0.0))

    def carry_out(self, actions):
        for message in messages_of(actions):
            if isinstance(message, OpenSession):
                self.opened(message)
            if isinstance(message, Close):
                self.rooms.remove(number_of(message))
        return actions

    def opened(self, message):
        self.asked.append(number_of(message))
        has_prompt_room = len(self.prompts.intersection(self.rooms)) < self.num_prompt_rooms
        if len(self.rooms) < self.num_rooms and (message.num_prompt_logprobs is None or has_prompt_room):
            self.rooms.append(number_of(message))
            return
        code = "too_many_sessions" if len(self.rooms) >= self.num_rooms else "too_many_prompt_logprobs"
        refused = Refusal(code, "what", "later", message.session_id, message.epoch)
        self.carry_out(self.core.receive(refused, self.now))

    def begin(self, *numbers, **changes):
        for number in numbers:
            request = Generation(session_id(number), (1, 2, 3), Sampling(), **({"max_tokens": 1000} | changes))
            if request.num_prompt_logprobs is not None:
                self.prompts.add(number)
            self.carry_out(self.core.begin(request, self.now))

    def end(self, number):
        return self.carry_out(self.core.forget(session_id(number), self.now))

    def wait(self, seconds):
        """Time passes in steps, and every open text gets a token in each; the verify node is heard."""
        for _ in range(round(seconds / 0.1)):
            self.now += 0.1
            for number in self.rooms[:]:
                self.grow(number)
            if self.core.link.connected:
                self.core.receive(Heartbeat(b"verify-1"), self.now)
            self.carry_out(self.core.tick(self.now))

    def grow(self, number, finish_reason=None):
        session = self.core.sessions[session_id(number)]
        base = len(session.tokens)
        promised = number in self.promised
        grown = Verdict(session_id(number), session.epoch, base, (7,), 0, 0, 0, finish_reason, promised=promised)
        self.carry_out(self.core.receive(grown, self.now))

    def seated(self):
        return [number for number in range(50) if self.core.queue.has_place(session_id(number))]


def number_of(message):
    return next(number for number in range(50) if session_id(number) == message.session_id)


def test_who_comes_first_gets_a_slot_and_the_next_one_when_it_is_free():
    node = Node()
    node.begin(1, 2, 3, 4)
    assert (node.asked, node.core.queue.num_running, node.core.queue.num_waiting) == ([1, 2], 2, 2)
    assert [type(message) for message in messages_of(node.end(2))] == [Close, OpenSession]
    assert node.asked == [1, 2, 3]


# -- users -------------------------------------------------------------------------------------------------------------


def test_a_free_place_goes_to_the_user_who_has_fewest():
    node = Node(num_slots=3)
    node.begin(1, 2, 3, 4, 5, user="a")
    node.begin(6, 7, user="b")
    node.begin(8, user="c")
    assert node.asked == [1, 2, 3]
    for number, following in {1: 6, 2: 8, 6: 7, 3: 4, 8: 5}.items():
        node.end(number)
        assert node.asked[-1] == following
    assert node.core.queue.num_waiting == 0


@pytest.mark.parametrize("num_slots", [1, 2])
def test_users_take_turns_where_there_are_fewer_places_than_users(num_slots):
    node = Node(num_slots)
    node.begin(1, 2, 3, 4, 5, user="a")
    node.begin(11, 12, 13, user="b")
    node.begin(21, 22, user="c")
    for served in range(9):
        node.end(node.asked[served])
    turns = {1: [1, 11, 21, 2, 12, 22, 3, 13, 4, 5], 2: [1, 2, 11, 21, 3, 12, 22, 4, 13, 5]}
    assert node.asked == turns[num_slots]


def test_who_finds_no_room_is_tried_again_after_users_with_fewer_places():
    node = Node(num_slots=4, num_rooms=1)
    node.begin(1, 2, user="a")
    node.begin(3, user="b")
    assert node.asked == [1, 2]
    node.wait(LATER_S + 0.1)
    assert node.asked == [1, 2, 3]
    node.num_rooms = 2
    node.wait(LATER_S + 0.1)
    assert (node.asked[3:], node.rooms) == ([3, 2], [1, 3])


def test_a_user_with_272_texts_keeps_no_other_out():
    node = Node(num_slots=16, connected=False)
    queue = node.core.queue
    for number in range(272):
        num_waiting = max(0, number - 16)
        assert queue.waiting_of("a", 256) == (num_waiting, 256)
        node.begin(number, user="a")
    assert queue.waiting_of("a", 256) == (256, 256), "alone, a user may have all"
    assert queue.waiting_of("b", 256) == (0, 128)
    node.begin(272, user="b")
    assert queue.waiting_of("a", 256) == (256, 255)
    assert queue.waiting_of("c", 256) == (0, 85)
    node.end(0)
    assert queue.has_place(session_id(272))
    node.end(1)
    assert queue.has_place(session_id(16))
    assert (queue.num_running, queue.num_waiting) == (16, 255)


def test_who_finds_no_room_waits_in_order_and_the_first_alone_asks_again():
    node = Node(num_slots=4, num_rooms=1)
    node.begin(1, 2, 3, 4)
    assert (node.asked, node.seated(), node.core.queue.num_waiting) == ([1, 2], [1], 3)
    node.wait(LATER_S - 0.1)
    assert node.asked == [1, 2]
    node.wait(3 * LATER_S)
    assert node.asked == [1, 2, 2, 2, 2]
    assert node.core.sessions[session_id(2)].state is State.OFFLINE


def test_after_a_break_those_with_a_place_are_opened_again_and_room_is_tried_anew():
    node = Node(num_slots=3, num_rooms=1)
    node.begin(1, 2, 3)
    node.carry_out(node.core.broke(node.now))
    node.rooms, node.asked, node.num_rooms = [], [], 3
    node.carry_out(node.core.receive(WELCOME, 1.0))
    node.wait(0.1)
    assert (node.asked, node.rooms) == ([1, 2, 3], [1, 2, 3])


def test_texts_without_room_for_prompt_logprobs_let_others_pass():
    node = Node(num_slots=20, num_rooms=20)
    node.num_prompt_rooms = 1
    node.begin(1, 2, 3, num_prompt_logprobs=5)
    node.begin(4, 5, 6)
    assert (node.asked, node.rooms) == ([1, 2, 4, 5, 6], [1, 4, 5, 6])
    assert node.core.queue.num_free(wants_prompt=False) == 16
    assert node.core.queue.num_free(wants_prompt=True) == 0, "so that at most `max_waiting` of them are taken on"
    node.wait(60.0)
    node.begin(7)
    assert (sorted(node.rooms), node.core.queue.num_waiting) == ([1, 4, 5, 6, 7], 2)


def test_only_the_first_text_with_prompt_logprobs_asks_again():
    node = Node(num_slots=20)
    node.num_prompt_rooms = 0
    node.begin(*range(1, 11), num_prompt_logprobs=0)
    node.wait(3.5 * LATER_S)
    assert node.asked == [1] * 4
    node.num_prompt_rooms = 10
    node.wait(LATER_S + 1.0)
    assert node.rooms == [*range(1, 11)]


# -- users who abandon their texts -------------------------------------------------------------------------------------


def test_texts_abandoned_at_once_do_not_have_the_draft_node_barred():
    desk, node = Desk(validates=False), Node(num_slots=16, connected=False)
    said, given_up = [Send(node.core.link.hello)], session_id(2)
    refused = list[str]()

    def carry_out(actions):
        for message in messages_of(actions):
            for answer in desk.up("a", message):
                refused.extend([answer.code] if isinstance(answer, Refusal) else [])
                carry_out(node.core.receive(answer, desk.now))

    carry_out(said)
    carry_out(node.core.begin(Generation(session_id(1), (1, 2, 3), Sampling(), max_tokens=9, user="b"), desk.now))
    for _ in range(400 * 20):  # 400 a second
        desk.now += 1 / 400
        carry_out(node.core.begin(Generation(given_up, (1,) * 100, Sampling(), max_tokens=9, user="a"), desk.now))
        carry_out(node.core.forget(given_up, desk.now))
    assert refused == []
    assert desk.core.rate_limiter._senders[b"a"].messages < desk.core.rate_limiter.max_messages / 4
    assert session_id(1) in desk.core.sessions


def test_texts_that_are_answered_are_opened_without_a_pause_and_others_are_held_back_and_opened_later():
    node = Node(num_slots=50)
    for _ in range(1000):
        node.begin(1)
        node.grow(1)
        node.end(1)
    assert len(node.asked) == 1000
    for _ in range(1000):
        node.begin(1)
        if node.core.queue.num_waiting:
            break
        node.end(1)
    assert node.core.queue.num_free(wants_prompt=False) == 0
    node.wait(0.1)
    assert node.rooms == [1]


# -- laws --------------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(num_slots=st.integers(1, 4), steps=STEPS)
def test_places_are_neither_leaked_nor_given_twice(num_slots, steps):
    node = Node(num_slots, num_rooms=2)
    number, present = 0, []
    for kind, value in steps:
        if kind == "begin" and number < 45:
            number += 1
            present.append(number)
            node.begin(number, num_prompt_logprobs=0 if value else None)
        elif kind == "end" and present:
            node.end(present.pop(value % len(present)))
        elif kind == "rooms":
            node.num_rooms = value
        elif kind == "prompt rooms":
            node.num_prompt_rooms = value
        elif kind == "wait":
            node.wait(value)
        assert sorted(node.rooms) == node.seated()
        assert len(node.rooms) <= num_slots
        assert node.core.queue.num_running + node.core.queue.num_waiting == len(present)
    node.num_rooms = node.num_prompt_rooms = 100
    node.wait(num_slots * LATER_S + 1.0)
    assert len(node.rooms) == min(num_slots, len(present))
    for left in present:
        node.end(left)
    assert (node.core.queue.num_running, node.core.queue.num_waiting, node.rooms) == (0, 0, [])


def test_users_who_take_all_that_they_may_leave_connections_for_others():
    node, number, taken = Node(num_slots=0, connected=False), 0, []
    for user in "abcdef":
        taken.append(node.core.queue.waiting_of(user, 256)[1])
        node.begin(*range(number, number + taken[-1]), user=user)
        number += taken[-1]
    assert taken == [256, 128, 85, 43, 0, 0]
    assert node.core.queue.num_waiting == 2 * 256


@settings(max_examples=60)
@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 5), st.integers(1, 12), st.booleans()), max_size=60))
def test_no_user_takes_the_share_of_others_and_all_together_are_bounded(max_waiting, steps):
    node = Node(num_slots=1, connected=False)
    queue, users, number = node.core.queue, dict[int, str](), 0
    for user, num_texts, ends in steps:
        num_own, most = queue.waiting_of(str(user), max_waiting)
        num_users = len({users[one] for one in users if not queue.has_place(session_id(one))} | {str(user)})
        assert most >= min(max_waiting // num_users, 2 * max_waiting - (queue.num_waiting - num_own))
        assert num_users > 1 or most == max_waiting
        if num_own + num_texts <= most + queue.num_free(wants_prompt=False):
            users |= dict.fromkeys(range(number, number + num_texts), str(user))
            node.begin(*range(number, number + num_texts), user=str(user))
            number += num_texts
        if ends and users:
            node.end(gone := next(iter(users)))
            del users[gone]
        assert queue.num_waiting <= 2 * max_waiting
        assert queue.num_running == min(1, len(users))
