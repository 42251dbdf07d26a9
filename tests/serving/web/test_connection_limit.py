"""The limit on connections, and which one is closed for a newcomer: cases by hand, then laws over random ones."""

import random

import pytest

from goodspeed.serving.web.connection_limit import ConnectionLimit, host_of


def full(*hosts: str, num_places: int | None = None) -> ConnectionLimit[str]:
    """Connections `a0`, `a1`, `b2`... of these hosts, which came at 0, 1, 2 s and fill all places."""
    places: ConnectionLimit[str] = ConnectionLimit(num_places or len(hosts))
    for moment, host in enumerate(hosts):
        assert places.admit(f"{host}{moment}", host, moment) is None
    return places


def test_there_is_room_for_so_many() -> None:
    places = full("a", "b", "c")
    assert places.num_taken == 3
    places.remove("a0")
    assert places.admit("new", "d", 9) is None


def test_who_was_idle_for_longest_makes_room() -> None:
    places = full("a", "b", "a", "a")
    places.mark_busy("a0")
    places.mark_idle("a0", 8)
    assert places.admit("new", "c", 9) == "a2"


def test_idle_begins_when_a_request_ends_and_not_again() -> None:
    places = full("a", "a", "b")
    places.mark_busy("a0")
    places.mark_idle("a0", 0.5)
    places.mark_idle("a0", 7)
    assert places.admit("new", "c", 9) == "a0"


def test_the_host_with_most_connections_makes_room() -> None:
    places = full("b", "a", "a", "c")
    assert places.admit("new", "d", 9) == "a1"


def test_who_has_most_gives_up_its_own() -> None:
    assert full("b", "a", "a", "c").admit("new", "a", 9) == "a1"


def test_no_host_takes_all_places() -> None:
    places: ConnectionLimit[int] = ConnectionLimit(16)
    assert [places.admit(number, "a", number) for number in range(16)] == [None] * 14 + [0, 1]
    assert places.admit(16, "b", 16) is None


def test_busy_connections_are_never_sent_away() -> None:
    places = full("a", "a", "b")
    places.mark_busy("a0")
    places.mark_busy("a1")
    assert places.admit("new", "b", 9) == "b2"
    places.mark_busy("new")
    assert places.admit("newer", "c", 10) == "newer"
    assert places.num_taken == 3


def test_a_host_with_more_idle_ones_does_not_take_the_place_of_one_with_less() -> None:
    places = full("b", "a", "a")
    places.mark_busy("a1")
    assert places.admit("new", "a", 9) == "a2"


def test_who_has_only_busy_ones_takes_the_place_of_an_idle_one() -> None:
    """Answers that run are work that was let in; several users behind one address are not kept out by who is silent."""
    places = full("a", "a", "b", "c", "c")
    places.mark_busy("a0")
    places.mark_busy("a1")
    assert places.admit("new", "a", 9) == "c3"


def test_a_new_host_is_authorized_where_every_host_has_one_idle_connection() -> None:
    """Strangers of as many addresses as there are places do not shut it out."""
    places: ConnectionLimit[int] = ConnectionLimit(512)
    for number in range(512):
        assert places.admit(number, f"host{number}", number) is None
    assert places.admit(512, "new", 512) == 0
    assert places.admit(513, "newer", 513) == 1
    assert places.num_taken == 512


def test_of_hosts_with_equally_many_the_longest_idle_connection_makes_room() -> None:
    assert full("b", "a", "b", "a").admit("new", "c", 9) == "b0"
    assert full("b", "a", "a", "a", "b", "b").admit("new", "c", 9) == "b0"
    assert full("c", "b", "b", "a").admit("new", "a", 9) == "b1"
    assert full("c", "a", "b", "b").admit("new", "a", 9) == "a1"


@pytest.mark.parametrize("seed", range(20))
def test_a_newcomer_is_refused_only_where_all_are_busy(seed: int) -> None:
    draw = random.Random(seed)
    places: ConnectionLimit[int] = ConnectionLimit(draw.randint(8, 20))
    idle: set[int] = set()
    for number in range(400):
        victim = places.admit(number, draw.choice("abcdefghijklmnopqrstuvwxyz"), number)
        assert victim != number or not idle
        idle.add(number)
        if victim is not None:
            idle.discard(victim)
        for who in draw.sample(sorted(idle), k=len(idle) // 2):
            places.mark_busy(who)
            idle.discard(who)
        if draw.random() < 0.1:
            for who in range(number + 1):
                places.remove(who)
            idle.clear()


def test_who_left_is_asked_nothing() -> None:
    places = full("a", "b")
    places.remove("a0")
    places.remove("a0")
    places.mark_busy("a0")
    places.mark_idle("a0", 3)
    assert places.num_taken == 1


@pytest.mark.parametrize("seed", range(20))
def test_laws(seed: int) -> None:
    """Never more than there are places, never a busy one sent away, never the longest idle of a host kept."""
    draw = random.Random(seed)
    places: ConnectionLimit[int] = ConnectionLimit(draw.randint(2, 20))
    there: dict[int, tuple[str, float | None]] = {}
    for number in range(400):
        host = draw.choice("aaaab")
        victim = places.admit(number, host, number)
        there[number] = (host, number)
        if victim is not None:
            victims_host, since = there.pop(victim)
            assert since is not None
            if victim != number:
                assert since <= min(
                    (s for h, s in there.values() if h == victims_host and s is not None), default=since
                )
        for who in draw.sample(sorted(there), k=len(there) // 2):
            if draw.random() < 0.5:
                places.mark_busy(who)
                there[who] = (there[who][0], None)
            elif there[who][1] is None:
                places.mark_idle(who, number)
                there[who] = (there[who][0], number)
        assert places.num_taken == len(there) <= places.num_places
        assert sum(h == "a" for h, _ in there.values()) <= places.max_per_host


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("testclient", "testclient"),
    ],
)
def test_whose_connections_are_counted_together(address: str, host: str) -> None:
    assert host_of(address) == host
