"""An answer is what its tokens say up to the first stop string, however they are delivered."""

from collections.abc import Container, Iterable
from functools import cache
from itertools import pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from draft_node.core.actions import Deliver, Finish
from draft_node.service.answer import Answer, Piece, Span
from draft_node.service.tokens import Alternative, TokenTexts
from goodspeed.engine.checkpoints import load_tokenizer
from goodspeed.engine.tokenizing.text import decode
from goodspeed.engine.tokenizing.text_stream import TextStream
from goodspeed.wire.messages import TokenLogprobs

texts = st.lists(st.sampled_from(["river", " the", "日本", "😀", "\n\n", "e", "é", " 12", "."]), max_size=12).map(
    "".join
)
cuts = st.lists(st.integers(0, 40), max_size=6)


@cache
def tokenizer() -> Any:
    return load_tokenizer("tiny-target")


@cache
def token_texts() -> TokenTexts:
    return TokenTexts(tokenizer())


def ids_of(text: str) -> list[int]:
    return list(tokenizer()(text)["input_ids"]) if text else []


def written(
    ids: list[int],
    at: Iterable[int],
    stops: list[str],
    min_tokens: int = 0,
    accepted: Container[int] = (),
    *,
    is_trimmed: bool = False,
) -> tuple[Answer, list[Piece]]:
    """The answer to tokens that are delivered in parts, some of them accepted, and finished for their length."""
    answer = Answer(tokenizer(), token_texts(), stops, min_tokens, is_trimmed=is_trimmed)
    borders = [0, *sorted(min(border, len(ids)) for border in at), len(ids)]
    pieces: list[Piece] = []
    for start, end in pairwise(borders):
        if not answer.is_complete:
            marks = tuple(number in accepted for number in range(start, end))
            pieces.append(answer.take(Deliver(tuple(ids[start:end]), (), marks)))
    if not answer.is_complete:
        pieces.append(answer.take(Finish("length")))
    assert answer.is_complete
    return answer, pieces


def naive(ids: list[int], stops: list[str], min_tokens: int) -> tuple[str, str | None, int]:
    """Token by token over the whole text so far: (text, stop string, number of tokens)."""
    before = ""
    for number in range(1, len(ids) + 1):
        text = decode(tokenizer(), ids[:number]).rstrip("\ufffd")
        found = [(text.find(stop, max(0, len(before) - len(stop) + 1)), stop) for stop in stops]
        ends = [(at + len(stop), at, stop) for at, stop in found if at >= 0]
        if ends and number >= min_tokens:
            _, at, stop = min(ends)
            return text[:at], stop, number
        before = text
    return decode(tokenizer(), ids), None, len(ids)


@given(texts, cuts, st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), max_size=3), st.integers(0, 8))
@example("river the river", [1], [(3, 4)], 0)
@example("日本日本", [1, 2, 3], [(1, 1)], 4)
def test_as_in_the_whole_text(text: str, at: list[int], spans: list[tuple[int, int]], min_tokens: int) -> None:
    stops = [text[start : start + size] for start, size in spans if text[start : start + size]]
    ids = ids_of(text)
    answer, pieces = written(ids, at, stops, min_tokens)
    expected, stop, num_tokens = naive(ids, stops, min_tokens)
    assert "".join(piece.text for piece in pieces) == expected
    assert (answer.stop, answer.num_tokens) == (stop, num_tokens)
    assert answer.reason == ("length" if stop is None else "stop")
    assert [token.id for piece in pieces for token in piece.tokens] == ids[:num_tokens]


def test_a_character_that_never_gets_whole_is_told_at_the_end() -> None:
    ids = ids_of("日")[:-1]
    answer, pieces = written(ids, [1], [])
    assert [piece.text for piece in pieces[:-1]] == [""] * (len(pieces) - 1)
    text = decode(tokenizer(), ids)
    assert (pieces[-1].text, pieces[-1].tokens, pieces[-1].spans) == (text, (), (Span(text, False),))
    assert answer.reason == "length"


def test_what_the_end_completes_may_be_a_stop_string() -> None:
    answer, pieces = written(ids_of("e日")[:-1], [], ["\ufffd"])
    assert "".join(piece.text for piece in pieces) == "e"
    assert (answer.reason, answer.stop) == ("stop", "\ufffd")


@given(texts, st.sets(st.integers(0, 40)), st.integers(1, 4), st.integers(0, 30))
def test_a_character_is_accepted_if_the_token_that_completes_it_is(
    text: str, accepted: set[int], at_once: int, stop_at: int
) -> None:
    """However much is held back for a stop string."""
    ids, marks = ids_of(text), list[bool]()
    stops = [text[stop_at : stop_at + 6]] if text[stop_at:] else []
    for number in range(len(ids)):
        whole = decode(tokenizer(), ids[: number + 1]).rstrip("\ufffd")
        marks += [number in accepted] * (len(whole) - len(marks))
    _, pieces = written(ids, range(0, len(ids), at_once), stops, 0, accepted)
    spans = [span for piece in pieces for span in piece.spans]
    assert [span.accepted for span in spans for _ in span.text] == marks[: sum(len(span.text) for span in spans)]
    assert "".join(span.text for span in spans) == (text.partition(stops[0])[0] if stops else text)


@given(st.text(" \n\tab", max_size=12), cuts, st.sets(st.integers(0, 20)), st.integers(0, 20))
def test_a_chat_begins_without_blanks_and_all_else_stays(
    text: str, at: list[int], accepted: set[int], stop_at: int
) -> None:
    """Tokens, stop strings and the origin of every character that is left are those of the text as it was written."""
    ids = ids_of(text)
    stops = [text[stop_at : stop_at + 2]] if text[stop_at:] else []
    whole, trimmed = told = [written(ids, at, stops, 0, accepted, is_trimmed=each)[1] for each in (False, True)]
    assert [piece.tokens for piece in trimmed] == [piece.tokens for piece in whole]
    assert "".join(piece.text for piece in trimmed) == "".join(piece.text for piece in whole).lstrip()
    assert all("".join(span.text for span in piece.spans) == piece.text for piece in trimmed)
    origins = [[span[1:] for piece in pieces for span in piece.spans for _ in span.text] for pieces in told]
    assert origins[1] == origins[0][len(origins[0]) - len(origins[1]) :]


def test_tokens_have_the_targets_own_logprobs_beside_them() -> None:
    river, the = ids_of("river")[0], ids_of(" the")[0]
    answer = Answer(tokenizer(), token_texts(), [], 0)
    told = TokenLogprobs(-0.5, (the, 0), (-0.25, -3.0))
    [token] = answer.take(Deliver((river,), (told,))).tokens
    assert token.logprob == -0.5
    assert token.top == (Alternative(the, *token_texts()[the], -0.25), Alternative(0, "<|end|>", b"", -3.0))


def test_what_is_held_back_is_marked_as_it_came() -> None:
    """A character counts with the token that completes it; what never becomes one is no accepted text."""
    ids = ids_of("a日b日")
    whole = TextStream(tokenizer())
    ends = [n for n in range(len(ids)) if whole.push([ids[n]])]  # tokens that complete something
    assert len(ends) < len(ids)
    answer = Answer(tokenizer(), token_texts(), (), 0)
    pieces = [answer.take(Deliver((token,), accepted=(n == ends[1],))) for n, token in enumerate(ids)]
    spans = [span for piece in pieces for span in piece.spans]
    assert [span.text for span in spans if span.accepted] == ["日"]
    cut_off = Answer(tokenizer(), token_texts(), (), 0)
    cut_off.take(Deliver((ids[ends[0] + 1],), accepted=(True,)))
    [span] = cut_off.take(Finish("length")).spans
    assert not span.accepted
