"""An answer is what its tokens say up to the first stop string, however they are delivered, also taken apart."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from draft_node.core.actions import Deliver, Finish
from draft_node.core.generation import Generation
from draft_node.parsing.formats import THINKING, Call, Content, Formats, Thinking
from draft_node.parsing.parser import ParserSettings
from draft_node.service.output_processor import OutputProcessor, Piece
from draft_node.service.token_text import Token, TokenTexts
from goodspeed.engine.tokenizing.text import decode
from goodspeed.engine.torch.checkpoints import load_vocabulary
from goodspeed.wire.messages import Sampling, TokenLogprobs
from tests import chats
from tests.draft_node.parsing.texts import HERMES, MISTRAL, SCHEMAS

TOKENIZER = load_vocabulary("tiny-target").tokenizer
TEXTS = TokenTexts(TOKENIZER)
texts = st.lists(st.sampled_from(["river", " the", "日本", "😀", "\n\n", "e", "é", " 12", "."]), max_size=12).map(
    "".join
)
cuts = st.lists(st.integers(0, 60), max_size=6)
CHAT_TOKENIZER = chats.tokenizer()
SHOWN = [CHAT_TOKENIZER.backend_tokenizer.token_to_id(one) for one in ("[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]")]
HIDDEN = frozenset(i for i, token in CHAT_TOKENIZER.added_tokens_decoder.items() if token.special) - frozenset(SHOWN)
HERE = ParserSettings(HERMES, None, SCHEMAS)
THERE = ParserSettings(MISTRAL, HIDDEN, SCHEMAS)
CALL = '<tool_call>\n{"name": "f", "arguments": {"n": 1}}\n</tool_call>'
MARKERS = (*chats.MARKERS, *chats.SPECIAL, CALL)
PIECES = st.sampled_from([*MARKERS, "the ", "é", "日本", "😀", "\n", " ", "st", "op", '{"', "[1]"])
R1 = ParserSettings(Formats(THINKING["think"]), HIDDEN)
SPELLED = [token for char in "\nso\n</think>\n no\n" for token in chats.ids_of(char)]
CLOSES = chats.ids_of("</think>")[0]
OPENED = tuple(chats.ids_of("<think>\n"))
"""A prompt that opens the thinking."""


def ids_of(text: str) -> list[int]:
    return list(TOKENIZER(text)["input_ids"]) if text else []


def answer_to(stops: Iterable[str] = (), **options: Any) -> OutputProcessor:
    generation = Generation(bytes(16), (), Sampling(), 99, stop=tuple(stops), **options)
    return OutputProcessor(TOKENIZER, TEXTS, generation)


def written(answer: OutputProcessor, ids: Sequence[int], at: Iterable[int] = ()) -> list[Piece]:
    """The pieces of an answer to tokens that are delivered in parts and finished for their length."""
    borders = [0, *sorted(min(border, len(ids)) for border in at), len(ids)]
    items: list[Deliver | Finish] = [Deliver(tuple(ids[start:end])) for start, end in pairwise(borders)]
    pieces: list[Piece] = []
    for item in [*items, Finish("length")]:
        if not answer.is_complete:
            pieces.append(answer.take(item))
    assert answer.is_complete
    return pieces


def naive(ids: list[int], stops: list[str], min_tokens: int) -> tuple[str, str | None, int]:
    """Token by token over the whole text so far: (text, stop string, number of tokens)."""
    before = ""
    for number in range(1, len(ids) + 1):
        text = decode(TOKENIZER, ids[:number]).rstrip("\ufffd")
        found = [(text.find(stop, max(0, len(before) - len(stop) + 1)), stop) for stop in stops]
        ends = [(at + len(stop), at, stop) for at, stop in found if at >= 0]
        if ends and number >= min_tokens:
            _, at, stop = min(ends)
            return text[:at], stop, number
        before = text
    return decode(TOKENIZER, ids), None, len(ids)


@given(texts, cuts, st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), max_size=3), st.integers(0, 8))
@example("river the river", [1], [(3, 4)], 0)
@example("日本日本", [1, 2, 3], [(1, 1)], 4)
def test_as_in_the_whole_text(text: str, at: list[int], spans: list[tuple[int, int]], min_tokens: int) -> None:
    stops = [text[start : start + size] for start, size in spans if text[start : start + size]]
    ids = ids_of(text)
    answer = answer_to(stops, min_tokens=min_tokens)
    pieces = written(answer, ids, at)
    expected, stop, num_tokens = naive(ids, stops, min_tokens)
    assert "".join(piece.text for piece in pieces) == expected
    assert (answer.stop, answer.num_tokens) == (stop, num_tokens)
    assert answer.reason == ("length" if stop is None else "stop")
    assert [token.id for piece in pieces for token in piece.tokens] == ids[:num_tokens]


def test_a_character_that_never_gets_whole_is_told_at_the_end_and_may_be_a_stop_string() -> None:
    ids, answer = ids_of("日")[:-1], answer_to()
    *pieces, last = written(answer, ids, [1])
    assert not any(piece.text for piece in pieces)
    assert (last.text, last.tokens, answer.reason) == (decode(TOKENIZER, ids), (), "length")
    answer = answer_to(["\ufffd"])
    assert "".join(piece.text for piece in written(answer, ids_of("e日")[:-1])) == "e"
    assert (answer.reason, answer.stop) == ("stop", "\ufffd")


@given(st.text(" \n\tab", max_size=12), cuts, st.integers(0, 20))
def test_a_chat_begins_without_blanks_and_all_else_stays(text: str, at: list[int], stop_at: int) -> None:
    """Tokens and stop strings are those of the text as it was written."""
    stops = [text[stop_at : stop_at + 2]] if text[stop_at:] else []
    whole, trimmed = [written(answer_to(stops, is_chat=each), ids_of(text), at) for each in (False, True)]
    assert [piece.tokens for piece in trimmed] == [piece.tokens for piece in whole]
    assert "".join(piece.text for piece in trimmed) == "".join(piece.text for piece in whole).lstrip()


def test_tokens_have_the_targets_own_logprobs_beside_them() -> None:
    river, the = ids_of("river")[0], ids_of(" the")[0]
    told = TokenLogprobs(-0.5, (the, 0), (-0.25, -3.0))
    [token] = answer_to().take(Deliver((river,), (told,))).tokens
    assert token.logprob == -0.5
    assert token.top == (Token(the, *TEXTS[the], -0.25), Token(0, "<|end|>", b"", -3.0))


# -- thinking and calls ------------------------------------------------------------------------------------------------


def parsing(parser: ParserSettings = HERE, prompt: tuple[int, ...] = (), **options: Any) -> OutputProcessor:
    """An answer that is taken apart."""
    generation = Generation(bytes(16), prompt, Sampling(), 99, is_chat=True, **options)
    return OutputProcessor(CHAT_TOKENIZER, TokenTexts(CHAT_TOKENIZER), generation, parser)


def told(pieces: Sequence[Piece]) -> tuple[str, str, list[Call | None]]:
    parts = [part for piece in pieces for part in piece.parts]
    assert "".join(piece.text for piece in pieces) == "".join(part.text for part in parts if isinstance(part, Content))
    calls = [part for part in parts if isinstance(part, Call)]
    content, thinking = ("".join(part.text for part in parts if isinstance(part, kind)) for kind in (Content, Thinking))
    return content, thinking, [*calls]


def test_stop_strings_are_looked_for_in_the_content_alone() -> None:
    text = f"<think>\nstop\n</think>\n\nst{CALL}\nop stop it"
    answer = parsing(stop=("stop", "arguments"))
    pieces = written(answer, chats.ids_of(text))
    assert told(pieces) == ("stop ", "stop", [Call("f", '{"n": 1}')])  # `st` and `op` are not next to each other
    assert (answer.stop, answer.reason) == ("stop", "stop")
    answer = parsing(stop=("stop",), min_tokens=6)
    assert told(written(answer, chats.ids_of("stop it")))[0] == "stop it"
    assert answer.stop is None


@pytest.mark.parametrize("stop", ["\n\n", "User:", "\n\nUser:"])
@pytest.mark.parametrize("at", [(), range(200)])
def test_a_stop_string_after_a_call_is_no_content(stop: str, at: Sequence[int]) -> None:
    pieces = written(parsing(stop=("\n\n", "User:")), chats.ids_of(f"{CALL}\n{CALL}{stop}"), at)
    assert told(pieces) == ("", "", [Call("f", '{"n": 1}')] * 2)


@pytest.mark.parametrize("parser", [HERE, THERE])
@given(st.lists(PIECES, max_size=10).map("".join), cuts)
@settings(max_examples=150)
def test_deliveries_do_not_matter(parser: ParserSettings, text: str, at: list[int]) -> None:
    answer, other = parsing(parser, stop=("stop",)), parsing(parser, stop=("stop",))
    pieces, whole = written(answer, chats.ids_of(text), at), written(other, chats.ids_of(text))
    assert told(pieces) == told(whole)
    assert (answer.stop, answer.num_tokens, answer.num_thinking) == (other.stop, other.num_tokens, other.num_thinking)
    if not any(mark in text for mark in MARKERS):  # what is taken out may leave `st` beside `op`
        assert "stop" not in told(pieces)[0]


@pytest.mark.parametrize("num_at_once", [1, 2, 100])
@pytest.mark.parametrize("opener", ["", "<think>"])
@pytest.mark.parametrize(
    ("closes", "thought", "said"), [(None, "so", "no\n</think>\n\n{}"), (CLOSES, "so\n</think>\n no", "{}")]
)
def test_thinking_ends_at_the_token_of_its_marker_if_there_is_one(num_at_once, opener, closes, thought, said):
    """So it may name the marker, which it then writes with other tokens."""
    ids = [*chats.ids_of(opener), *SPELLED, *chats.ids_of("</think>\n\n{}")]
    answer = parsing(replace(R1, closes=closes), () if opener else OPENED)
    assert told(written(answer, ids, range(num_at_once, len(ids), num_at_once))) == (said, thought, [])
    after = chats.ids_of("\n\n{}" if closes else " no\n</think>\n\n{}")
    assert answer.num_thinking == len(ids) - len(after) - (not closes)


def test_thinking_that_never_ends_is_no_content() -> None:
    pieces = written(parsing(replace(R1, closes=CLOSES), OPENED), SPELLED[:-1])
    assert told(pieces) == ("", "so\n</think>\n no", [])
