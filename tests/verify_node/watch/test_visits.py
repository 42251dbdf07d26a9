"""The verify node tells who came and went: each visit once, a return as a return, in bounded memory."""

from tests.fakes import Desk, make_hello
from verify_node.core.counts import MAX_REFUSALS, MAX_VISITS, Diary
from verify_node.watch.visits import Visits


def said(visits: Visits) -> list[str]:
    return [sentence.text % sentence.values for sentence in visits.news()]


def test_each_visit_is_told_once() -> None:
    diary = Diary()
    diary.visit("joined", "early", "tiny-draft-s", 0.0)
    visits = Visits(diary)  # what was before is not news
    diary.visit("joined", "ana", "tiny-draft-s", 1.0)
    diary.refused("ana", "budget", 1.5)  # is counted elsewhere
    diary.visit("joined", "ben", "tiny-draft-m", 2.0)
    assert said(visits) == ["draft node ana connected (tiny-draft-s)", "draft node ben connected (tiny-draft-m)"]
    assert said(visits) == []
    diary.visit("left", "ben", "tiny-draft-m", 3.0)
    diary.visit("lost", "ana", "m", 3.0)
    diary.visit("barred", "", "too many messages", 4.0)
    assert said(visits) == [
        "draft node ben left",
        "draft node ana is away",
        "draft node (without a name) is barred: too many messages",
    ]


def test_words_of_peers_are_fit_for_a_terminal() -> None:
    diary = Diary()
    visits = Visits(diary)
    diary.visit("joined", "ana", "x\u2028\x1b[2J" + "y" * 1000, 1.0)
    (line,) = said(visits)
    assert line.isprintable()
    assert len(line) < 400


def test_a_crowd_is_told_by_its_newest() -> None:
    diary = Diary()
    visits = Visits(diary)
    for number in range(3 * MAX_VISITS):
        diary.visit("joined", f"other-{number}", "m", 0.0)
    told = said(visits)
    assert (len(told), told[-1]) == (MAX_VISITS, f"draft node other-{3 * MAX_VISITS - 1} connected (m)")


def test_who_is_not_let_in_is_told_once_with_the_whole_reason() -> None:
    desk = Desk()
    visits = Visits(desk.core.diary)
    for _ in range(3):
        desk.up("a", make_hello("ana", tokenizer="another"))
        desk.core.replies.turned_away("KEY", desk.now)
        desk.now += 1.0
    desk.open("x")  # without a Hello: that keeps nobody out
    assert said(visits) == [
        "draft node ana is refused (tokenizer): this draft node (--model fake-draft) has another tokenizer than the "
        "target ",
        "draft node (without a name) is refused (not_enrolled): no file in the --enrolled folder has its key KEY",
    ]
    desk.core.replies.turned_away("KEY", desk.now)
    assert said(visits) == []
    desk.core.replies.turned_away("ANOTHER", desk.now)
    assert [line.rpartition(": ")[2] for line in said(visits)] == [
        "no file in the --enrolled folder has its key ANOTHER"
    ]


def test_a_crowd_that_is_not_let_in_is_remembered_within_a_bound() -> None:
    diary = Diary()
    visits = Visits(diary)
    for number in range(10 * MAX_REFUSALS):
        diary.refused(f"peer-{number}", "tokenizer", float(number), "not the target's")
        if number % 10 == 0:
            visits.news()
    visits.news()
    assert len(visits._kept_out) == MAX_REFUSALS
