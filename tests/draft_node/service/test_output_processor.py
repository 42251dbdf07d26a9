"""An answer is what its tokens say up to the first stop string, however they are delivered."""

from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from draft_node.core.actions import Deliver, Finish
from draft_node.core.generation import Generation
from draft_node.service.output_processor import OutputProcessor, Piece
from draft_node.service.token_text import Token, TokenTexts
from goodspeed.engine.tokenizing.text import decode
from goodspeed.engine.torch.checkpoints import load_vocabulary
from goodspeed.wire.messages import Sampling, TokenLogprobs

texts = st.lists(st.sampled_from(["river", " the", "日本", "😀", "\n\n", "e", "é", " 12", "."]), max_size=12).map(
    "".join
)
cuts = st.lists(st.integers(0, 40), max_size=6)


@cache
def tokenizer() -> Any:
    return load_vocabulary("tiny-target").tokenizer


@cache
def token_texts() -> TokenTexts:
    return TokenTexts(tokenizer())


def ids_of(text: str) -> list[int]:
    return list(tokenizer()(text)["input_ids"]) if text else []


def answer_to(**options: Any) -> OutputProcessor:
    return OutputProcessor(tokenizer(), token_texts(), Generation(bytes(16), (), Sampling(), 99, **options))


def written(
    ids: list[int],
    at: Iterable[int],
    stops: list[str],
    min_tokens: int = 0,
    *,
    is_trimmed: bool = False,
) -> tuple[OutputProcessor, list[Piece]]:
    """The answer to tokens that are delivered in parts and finished for their length."""
    answer = answer_to(stop=tuple(stops), min_tokens=min_tokens, is_chat=is_trimmed)
    borders = [0, *sorted(min(border, len(ids)) for border in at), len(ids)]
    pieces: list[Piece] = []
    for start, end in pairwise(borders):
        if not answer.is_complete:
            pieces.append(answer.take(Deliver(tuple(ids[start:end]))))
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
    assert (pieces[-1].text, pieces[-1].tokens) == (text, ())
    assert answer.reason == "length"


def test_what_the_end_completes_may_be_a_stop_string() -> None:
    answer, pieces = written(ids_of("e日")[:-1], [], ["\ufffd"])
    assert "".join(piece.text for piece in pieces) == "e"
    assert (answer.reason, answer.stop) == ("stop", "\ufffd")


@given(st.text(" \n\tab", max_size=12), cuts, st.integers(0, 20))
def test_a_chat_begins_without_blanks_and_all_else_stays(text: str, at: list[int], stop_at: int) -> None:
    """Tokens and stop strings are those of the text as it was written."""
    ids = ids_of(text)
    stops = [text[stop_at : stop_at + 2]] if text[stop_at:] else []
    whole, trimmed = [written(ids, at, stops, is_trimmed=each)[1] for each in (False, True)]
    assert [piece.tokens for piece in trimmed] == [piece.tokens for piece in whole]
    assert "".join(piece.text for piece in trimmed) == "".join(piece.text for piece in whole).lstrip()


def test_tokens_have_the_targets_own_logprobs_beside_them() -> None:
    river, the = ids_of("river")[0], ids_of(" the")[0]
    answer = answer_to()
    told = TokenLogprobs(-0.5, (the, 0), (-0.25, -3.0))
    [token] = answer.take(Deliver((river,), (told,))).tokens
    assert token.logprob == -0.5
    assert token.top == (Token(the, *token_texts()[the], -0.25), Token(0, "<|end|>", b"", -3.0))
