"""What a promise asks of the rounds to come."""

from math import isfinite

from goodspeed.admission.asks import check
from goodspeed.admission.headroom import FIRST_TOKEN_S
from verify_node.admission import Book, Request
from verify_node.admission.owing import NOBODY, ask

ONE = b"one"


def test_a_text_without_a_rate_that_is_read_again_has_some_time():
    """It has had its first token, so nothing of it is due; its draft node came back, and its memory was gone."""
    book = Book()
    book.promise(Request(ONE, 2.0, 6, None, 8, 1.0))
    book.read(ONE, 6)
    book.delivered(ONE, 3, 1.0)
    book.read_again(ONE, 9)
    assert not isfinite(book[ONE].due)
    asked = ask(book[ONE], 1.5, 0.1, NOBODY)
    check([asked], None)
    assert 0.0 < asked.deadline_s <= FIRST_TOKEN_S
