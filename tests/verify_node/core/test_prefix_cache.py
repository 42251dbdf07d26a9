"""Pages of read text that sessions share: who finds what, who waits for whom, and that texts are the target's own."""

from typing import Any

import pytest

from goodspeed.errors import NOT_NUMBERS
from goodspeed.fair.round_time import Linear
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.handshake import Leave
from goodspeed.wire.messages import Ack, Close, Slo, Verdict
from tests.fakes import Desk, alone, request_of, session_id
from tests.verify_node.answers import fed
from verify_node.scheduler.round import Outcome

PROMPT = tuple(range(1, 31))
"""Seven full pages of four tokens, and two tokens."""


def desk_of(**options: Any) -> Desk:
    return Desk("a", self_draft=False, **options, draft_model="")


def open_one(desk: Desk, number: int, *, peer: str = "a", salt: bytes = b"alice", **changes: Any) -> None:
    desk.open(peer, number, cache_salt=salt, **({"prompt": PROMPT} | changes))


def write(desk: Desk, number: int, *, peer: str = "a", **changes: Any) -> list[Verdict]:
    """Opens a session; returns its verdicts until its text is at its end."""
    open_one(desk, number, peer=peer, **changes)
    return run(desk, number)


def alone_of(desk: Desk, number: int) -> tuple[int, ...]:
    """Returns what the target alone writes for an open session."""
    return alone(request_of(desk.session(number).opened))


def run(desk: Desk, number: int) -> list[Verdict]:
    """The verdicts of a session until its text is at its end; all sessions acknowledge theirs."""
    verdicts: list[Any] = []
    for _ in range(200):
        verdicts += [verdict for verdict in desk.round() if verdict.session_id == session_id(number)]
        desk.acknowledge()
        if verdicts and verdicts[-1].finish_reason:
            return verdicts
    raise AssertionError(f"session {number} is not at its end")


def found(desk: Desk) -> tuple[int, int]:
    return desk.core.counts.num_looked_up, desk.core.counts.num_found


def text_of(verdicts: list[Verdict]) -> tuple[int, ...]:
    return tuple(token for verdict in verdicts for token in verdict.tokens)


def test_the_same_prompt_is_read_once_and_the_text_is_the_targets_own() -> None:
    desk = desk_of()
    for number in (1, 2):
        verdicts = write(desk, number)
        assert text_of(verdicts) == alone_of(desk, number)
        assert {verdict.num_cached for verdict in verdicts[1:]} == {0}
        assert verdicts[0].num_cached == (0 if number == 1 else 28)
    assert found(desk) == (60, 28)


def test_the_second_turn_of_a_chat_reads_what_is_new() -> None:
    """The first turn's answer is there, too, up to the last full page before its newest token."""
    desk = desk_of(num_pages=100)
    turn = (*PROMPT, *text_of(write(desk, 1, max_tokens=15)))
    assert len(turn) == 45
    assert write(desk, 2, prompt=(*turn, 5, 6, 7))[0].num_cached == 44
    assert write(desk, 3, prompt=(*PROMPT[:9], 0, *PROMPT[10:]))[0].num_cached == 8


@pytest.mark.parametrize(("peer", "salt"), [("a", b"bob"), ("a", b""), ("b", b"alice")])
def test_another_user_of_the_same_client_finds_nothing_nor_does_another_client(peer: str, salt: bytes) -> None:
    desk = desk_of()
    desk.hello("b", draft_model="")
    write(desk, 1)
    assert write(desk, 2, peer=peer, salt=salt)[0].num_cached == 0
    assert found(desk) == (60, 0)


def test_sessions_without_a_salt_share_with_none_and_find_their_own_text_when_they_reopen() -> None:
    desk = desk_of()
    for number in (1, 2):
        open_one(desk, number, salt=b"")
        desk.round()
    assert found(desk) == (60, 0)
    desk.now += desk.core.welcome.lease_s + 1.0
    desk.core.tick(desk.now)  # the line was lost
    assert not desk.core.sessions
    desk.hello(draft_model="")
    open_one(desk, 1, salt=b"", epoch=2)
    desk.round()
    assert found(desk) == (90, 28)


@pytest.mark.parametrize("ends", ["closed", "at its end", "left"])
@pytest.mark.parametrize(("salt", "num_kept"), [(b"alice", 7), (b"", 0)])
def test_what_nobody_can_find_any_more_is_not_kept(ends: str, salt: bytes, num_kept: int) -> None:
    desk = desk_of()
    open_one(desk, 1, salt=salt, max_tokens=1 if ends == "at its end" else 9)
    desk.round()
    if ends != "at its end":
        desk.up("a", Close(session_id(1), 1) if ends == "closed" else Leave())
        desk.core.plan(desk.now)
    assert desk.core.pool.num_unused == num_kept
    assert desk.core.pool.num_free == desk.core.pool.num_pages


def test_what_was_read_before_a_preemption_is_not_kept_either() -> None:
    desk = desk_of(num_pages=16)
    open_one(desk, 1, prompt=(1, 2, 3, 4, 5), max_tokens=30)
    open_one(desk, 2, salt=b"", max_tokens=20)
    while not desk.core.counts.num_preempted:
        desk.round()
        desk.acknowledge()
    assert (desk.core.pool.length(session_id(2)), desk.core.pool.num_unused > 0) == (0, True)
    desk.up("a", Close(session_id(2), 1))
    desk.round()
    assert desk.core.pool.num_unused == 0
    assert desk.core.pool.num_free == desk.core.pool.num_pages - len(desk.core.pool.table(session_id(1)))


@pytest.mark.parametrize("ends", ["closed", "at its end"])
def test_what_a_text_wrote_before_it_was_opened_with_less_is_not_kept_either(ends: str) -> None:
    desk = desk_of(num_pages=100)
    open_one(desk, 1, salt=b"", max_tokens=20)
    for _ in range(12):
        desk.round()
        desk.acknowledge()
    committed = tuple(desk.session(1).tokens[len(PROMPT) :])
    open_one(desk, 1, salt=b"", max_tokens=20, epoch=2, committed=committed[:2])
    desk.round()
    assert desk.core.pool.num_unused > 0
    if ends == "closed":
        for _ in range(12):  # until it is as long again
            desk.round()
            desk.acknowledge()
        desk.up("a", Close(session_id(1), 2))
        desk.core.plan(desk.now)
    else:
        run(desk, 1)
    assert (desk.core.pool.num_unused, desk.core.pool.num_free) == (0, 100)


def test_texts_that_share_with_none_push_no_shared_prompt_out() -> None:
    desk = desk_of(num_pages=40)
    write(desk, 1)
    for number in range(2, 8):
        write(desk, number, salt=b"", prompt=tuple(number * i % 29 + 1 for i in range(60)), max_tokens=4)
    assert write(desk, 20)[0].num_cached == 28


def test_nothing_is_kept_where_it_is_off() -> None:
    desk = desk_of(prefix_cache=False)
    for number in (1, 2):
        write(desk, number)
    assert found(desk) == (60, 0)
    assert desk.core.pool.num_unused == 0


def test_it_is_told_again_until_a_verdict_is_acknowledged() -> None:
    desk = desk_of()
    write(desk, 1)
    open_one(desk, 2)
    told = [desk.round()[0].num_cached, desk.round()[0].num_cached]
    [again] = desk.up("a", Ack(session_id(2), 1, len(PROMPT)))
    desk.up("a", Ack(session_id(2), 1, len(PROMPT) + 1))
    assert [*told, again.num_cached, desk.round()[0].num_cached] == [28, 28, 28, 0]


def test_choices_of_one_prompt_read_it_once_chunk_by_chunk() -> None:
    """A round reads 16 tokens of prompts here; the others wait without memory, and then read two tokens each."""
    desk = desk_of(max_round_tokens=32)
    for number in range(1, 9):
        open_one(desk, number)
    lengths = []
    while found(desk)[0] < 8 * 30:
        planned = desk.plan()
        lengths.append([*fed(planned).values()])
        desk.finish(planned)
    assert lengths[:2] == [[16], [14]]
    assert sum(map(sum, lengths)) < 30 + 7 * 2 + 8 * len(lengths)
    assert found(desk) == (240, 7 * 28)
    for number in range(1, 9):
        assert desk.text(number) == alone_of(desk, number)[: len(desk.text(number))]


def test_nobody_waits_for_another_scope_nor_for_little() -> None:
    desk = desk_of(max_round_tokens=200)
    kinds: list[dict[str, Any]] = [{}, {"salt": b"bob"}, {"prompt": (9,) * 8}, {"prompt": (9,) * 8}]
    for number, changes in enumerate(kinds):
        open_one(desk, number, **changes)
    assert len(desk.plan().entries) == 4


def test_who_waits_goes_on_when_the_reader_leaves() -> None:
    desk = desk_of(max_round_tokens=32)
    for number in (1, 2):
        open_one(desk, number)
    desk.round()
    desk.up("a", Close(session_id(1), 1))
    assert text_of(run(desk, 2)) == alone_of(desk, 2)
    assert found(desk) == (60, 16)


def desk_with_a_long_text() -> Desk:
    """Ten pages are free beside another user's text, and a text of 18 that begins with PROMPT waits for them."""
    free = Linear(fixed_s=1.0)  # prompts make no round longer, so none is prefilled in parts
    desk = desk_of(num_pages=24, max_round_tokens=200, cost=free)
    open_one(desk, 9, salt=b"bob", prompt=tuple(7 * i % 29 + 1 for i in range(56)), max_tokens=40)
    desk.round()
    open_one(desk, 1, prompt=(*PROMPT, *(5 * i % 29 + 1 for i in range(40))))
    return desk


def test_nobody_waits_for_one_that_finds_no_room() -> None:
    """The short one shares five pages with the long one, and fits where that does not."""
    desk = desk_with_a_long_text()
    open_one(desk, 2, prompt=PROMPT[:20], max_tokens=5)
    planned = desk.plan()
    assert fed(planned) == {9: 1, 2: 20}
    assert planned.crowded_out == (session_id(1),)


def test_of_those_who_find_room_one_reads_for_the_rest() -> None:
    desk = desk_with_a_long_text()
    for number in (2, 3):
        open_one(desk, number, prompt=PROMPT[:17], max_tokens=3)
    planned = desk.plan()
    assert fed(planned) == {9: 1, 2: 17}
    desk.finish(planned)
    assert fed(desk.plan())[3] == 1


def test_who_need_not_wait_takes_nothing_that_others_were_left() -> None:
    """A third user, who came first, has eight of ten free pages: the second short session finds too few."""
    desk = desk_with_a_long_text()
    open_one(desk, 4, salt=b"carol", prompt=(3,) * 30)
    open_one(desk, 2, prompt=PROMPT[:20], max_tokens=5)
    planned = desk.plan()
    assert fed(planned) == {9: 1, 4: 30}
    assert set(planned.crowded_out) == {session_id(1), session_id(2)}


def test_a_session_that_lost_its_memory_reads_little_again() -> None:
    """The older one takes the room of the younger, whose pages stay until they are needed."""
    desk = desk_of(num_pages=16)
    open_one(desk, 1, prompt=(1, 2, 3, 4, 5), max_tokens=20)
    open_one(desk, 2, max_tokens=20)
    open_one(desk, 3, prompt=(7,) * 18, salt=b"bob")
    num_fed = 0
    for _ in range(100):
        planned = desk.core.plan(desk.now)
        if planned is None:
            break
        num_fed += planned.num_tokens
        desk.finish(planned)
        desk.acknowledge()
    assert desk.core.counts.num_preempted > 0
    for number in (1, 2, 3):
        assert desk.text(number) == alone_of(desk, number)


@pytest.mark.parametrize(
    ("failed", "num_cached"),
    [(None, 0), (NOT_NUMBERS, 0), ("its rules leave no token to draw", 28), ("no text satisfies it", 28)],
)
def test_what_may_be_wrong_in_memory_is_not_found_again(failed: str | None, num_cached: int) -> None:
    """failed: why one text did; None: the target failed as a whole. Rules and forms say nothing of the memory."""
    desk = desk_of()
    write(desk, 1)
    open_one(desk, 2)
    planned = desk.plan()
    if failed is None:
        desk.core.rounds.abort("out of memory", desk.now)
    else:
        desk.target.run(planned)
        desk.core.rounds.finish([Outcome(session_id(2), (), 0, 0.0, failed=failed)], 0.01, desk.now)
    assert write(desk, 3)[0].num_cached == num_cached


def test_promised_texts_wait_for_nobody_and_share_all_the_same() -> None:
    tier = Objectives(ttft_s=5.0, tpot_s=1.0, tier="chat")
    desk = desk_of(tiers=(tier,), admission="dp", num_pages=200)
    for number in (1, 2, 3):
        write(desk, number, slo=Slo(tier))
    assert found(desk) == (90, 56)
