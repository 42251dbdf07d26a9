"""With keys each message belongs to a key, which has limits and can be revoked. No sockets."""

from typing import Any

import pytest

from goodspeed.errors import MalformedMessage, WrongVersion
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.handshake import Heartbeat, Leave, Welcome
from goodspeed.wire.messages import Ack, Close, OpenSession, Refusal, UpMessage
from tests.fakes import Desk, make_core, make_hello, make_open, replace_message, session_id
from tests.verify_node.answers import refusal

KEYS = {name: name * 40 for name in "abcd"}


class KeyedDesk(Desk):
    """A peer's key is that of its name, unless a message is said with another's."""

    def __init__(self, **options: Any) -> None:
        super().__init__(core=make_core(**options))
        self.core.enrol({KEYS[name]: Enrolled(name, KEYS[name]) for name in "abc"}, self.now)

    def up(self, peer: str, message: UpMessage, key: str | None = None) -> list[Any]:
        principal = KEYS.get(peer) if key is None else KEYS.get(key)
        return [send.message for send in self.core.receive(peer.encode(), message, self.now, principal)]

    def enrol(self, *names: str, **limits: Any) -> list[tuple[str, Refusal]]:
        """Enrols only these, with these limits; returns what is said to whom."""
        records = {KEYS[name]: Enrolled(name, KEYS[name], **limits) for name in names}
        return [(send.peer_id.decode(), send.message) for send in self.core.enrol(records, self.now)]  # type: ignore[misc]


@pytest.fixture
def desk() -> KeyedDesk:
    """Clients a and b, each with a session that drafts: 1 and 2."""
    desk = KeyedDesk()
    for number, name in enumerate("ab", 1):
        assert isinstance(desk.hello(name), Welcome)
        assert desk.open(name, number) == []
    desk.round()
    return desk


def code(answers: list[Any]) -> str:
    return refusal(answers).code


def test_only_enrolled_keys_are_heard_and_a_key_has_one_name_and_nobody_elses(desk: KeyedDesk) -> None:
    for key in ("d", ""):
        for message in (make_hello("d"), make_open(9), Heartbeat(b"bootboot"), Ack(session_id(1), 1, 3)):
            assert code(desk.up("x", message, key)) == "not_enrolled"
    assert set(desk.core.peers) == {b"a", b"b"}
    assert desk.core.replies.refusals["not_enrolled"] == 8
    [answer] = desk.up("c", make_hello("a"))
    assert (answer.code, "'c'" in answer.what) == ("wrong_name", True)
    assert b"c" not in desk.core.peers
    assert code(desk.up("a", make_hello("b"), key="b")) == "not_owner"


def of_session_1(desk: KeyedDesk) -> list[UpMessage]:
    again: OpenSession = replace_message(desk.session(1).opened, epoch=2)
    return [Ack(session_id(1), 1, 4), desk.honest_draft(1), Close(session_id(1), 1), again]


@pytest.mark.parametrize("which", range(4))
def test_a_name_taken_by_another_key_gets_nothing_of_its_owner(desk: KeyedDesk, which: int) -> None:
    """Whatever is sent by that name now reaches the other: so nothing is, and the owner opens anew."""
    message = of_session_1(desk)[which]
    assert code(desk.up("a", message, key="b")) == "not_owner"
    assert b"a" not in desk.core.peers
    assert session_id(1) not in desk.core.sessions
    desk.draft("b", 2)
    assert {verdict.session_id for verdict in desk.round()} == {session_id(2)}
    assert isinstance(desk.hello("a"), Welcome)  # its owner, back
    assert desk.open("a", 1, epoch=2) == []


def test_a_process_that_connects_again_takes_its_sessions_along(desk: KeyedDesk) -> None:
    assert isinstance(desk.up("a2", make_hello("a"), key="a")[0], Welcome)
    assert set(desk.core.peers) == {b"a2", b"b"}
    assert desk.session(1).peer_id == b"a2"
    assert desk.session(2).peer_id == b"b"
    other = make_hello("a", boot_id=b"another1")  # another process of the same key is beside it
    assert isinstance(desk.up("a3", other, key="a")[0], Welcome)
    assert set(desk.core.peers) == {b"a2", b"a3", b"b"}
    assert desk.up("a3", make_open(3), key="a") == []
    assert isinstance(desk.up("a3", make_hello("a"), key="a")[0], Welcome)
    assert set(desk.core.sessions) == {session_id(1), session_id(2)}, "the other process does not return"


def test_a_key_that_goes_takes_its_sessions_along_at_once(desk: KeyedDesk) -> None:
    desk.draft("a", 1)
    desk.draft("b", 2)
    planned = desk.plan()
    [(peer, refusal)] = desk.enrol("b", "c")  # in the middle of a round
    assert (peer, refusal.code, refusal.session_id) == ("a", "not_enrolled", None)
    assert set(desk.core.sessions) == {session_id(2)}
    assert {verdict.session_id for verdict in desk.finish(planned)} == {session_id(2)}
    for message in (make_hello("a"), Heartbeat(b"bootboot"), Ack(session_id(1), 1, 4)):
        assert code(desk.up("a", message)) == "not_enrolled"
    desk.draft("b", 2)
    desk.round()
    assert desk.core.pool.length(session_id(1)) == 0
    desk.enrol("a", "b", "c")
    assert isinstance(desk.hello("a"), Welcome)
    assert desk.open("a", 1, epoch=2) == []


def test_a_key_that_is_gone_for_a_look_is_not_barred_for_what_was_on_its_way(desk: KeyedDesk) -> None:
    desk.enrol("b", "c")
    for _ in range(150):
        desk.up("a", Ack(session_id(1), 1, 4))
    desk.enrol("a", "b", "c")
    assert isinstance(desk.hello("a"), Welcome)


def test_a_key_is_named_before_its_hello(desk: KeyedDesk) -> None:
    desk.core.reject(b"c", WrongVersion("the draft node speaks version 9"), desk.now, KEYS["c"])
    for _ in range(105):
        desk.core.reject(b"c", MalformedMessage("no message"), desk.now, KEYS["c"])
    found = {(event.kind, event.client) for event in desk.core.client_events.newest_first() if event.client == "c"}
    assert found >= {("refused", "c"), ("barred", "c")}


def test_a_key_that_changes_says_hello_again(desk: KeyedDesk) -> None:
    records = dict(desk.core.register.enrolled or {})
    records[KEYS["a"]] = Enrolled("a", KEYS["a"], weight=4.0, max_sessions=3)
    [send] = desk.core.enrol(records, desk.now)
    assert (send.peer_id, send.message.code) == (b"a", "hello_first")
    assert set(desk.core.sessions) == {session_id(2)}
    assert code(desk.draft("b", 2, tokens=()) or desk.up("a", Ack(session_id(1), 1, 4))) == "hello_first"
    [known] = [entry for entry in desk.core.client_events.newest_first() if entry.kind == "refused"]
    assert (known.client, known.num_times) == ("a", 2)  # its key says who it is
    assert isinstance(desk.hello("a"), Welcome)
    client = desk.core.allocator.client("a")
    assert (client.weight, client.max_sessions) == (4.0, 3)
    assert desk.core.enrol(dict(records), desk.now) == [], "nothing changed"


def test_the_keys_own_limit_of_sessions() -> None:
    desk = KeyedDesk()
    desk.enrol("a", "b", max_sessions=2)
    desk.hello("a")
    desk.hello("b")
    assert [desk.open("a", number) for number in (1, 2)] == [[], []]
    assert code(desk.open("a", 3)) == "too_many_sessions"
    assert desk.open("b", 4) == [], "the other's limit is its own"
    desk.up("a", Close(session_id(1), 1))
    assert desk.open("a", 3) == []


@pytest.mark.parametrize("models", [("", "m"), ("m", "")])
def test_a_draft_model_is_used_whichever_process_of_its_key_has_it(models: tuple[str, str]) -> None:
    desk = KeyedDesk()
    for peer, model in zip(("c1", "c2"), models, strict=True):
        desk.up(peer, make_hello("c", boot_id=peer.encode().rjust(8), draft_model=model), "c")
    with_model, without = ("c1", "c2") if models[0] else ("c2", "c1")
    desk.up(with_model, make_open(3), "c")
    assert [verdict.may_draft > 0 for verdict in desk.round()] == [True]
    client = desk.core.allocator.clients["c"]
    desk.up(without, Leave(), "c")
    assert client.has_model
    desk.up(without, make_hello("c", boot_id=without.encode().rjust(8), draft_model=""), "c")
    desk.now += 1.0
    desk.up(without, Heartbeat(b"bootboot"), "c")
    desk.now += desk.core.welcome.lease_s - 0.5
    desk.core.tick(desk.now)
    assert not client.has_model, "the other is lost"


class Looked(dict[Any, Any]):
    """Counts the values that are looked at."""

    num = 0

    def values(self):
        self.num += len(self)
        return super().values()


def test_many_processes_that_vanish_at_once_are_removed_in_a_few_passes() -> None:
    desk = Desk(validates=False, max_sessions=300, max_client_sessions=300)
    for number in range(300):
        desk.hello(str(number))
        desk.open(str(number), number)
    register = desk.core.register
    register.peers, register.sessions._open = peers, sessions = Looked(register.peers), Looked(register.sessions)
    register.expire(desk.now + desk.core.welcome.lease_s + 1.0, 0.01)
    assert not peers
    assert not sessions
    assert peers.num + sessions.num <= 5 * 300


def test_another_process_of_a_key_resets_nothing_while_the_first_is_there() -> None:
    """Else a client could have false claims believed again at any time."""
    desk = KeyedDesk()
    desk.up("c", make_hello("c", draft_fingerprint="1"))
    client = desk.core.allocator.clients["c"]
    acceptance = client.acceptance
    client.calibration("model").observe(bytes(9), 0)
    for number in range(2, 5):
        desk.up("c2", make_hello("c", boot_id=b"bootboot", draft_fingerprint=str(number)), "c")
        desk.up("c2", Leave(), "c")
    assert client.acceptance is acceptance
    assert sum(client.calibration("model").tries) > 0
    assert client.draft_fingerprint == "1"
