"""A chat's tokens taken apart: stop strings and counts are right however the tokens are delivered."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draft_node.core.actions import Deliver, Finish
from draft_node.core.generation import Generation
from draft_node.parsing.formats import THINKING, Call, Content, Formats, Thinking
from draft_node.parsing.parser import ParserSettings
from draft_node.service.output_processor import OutputProcessor, Piece
from draft_node.service.token_text import TokenTexts
from goodspeed.wire.messages import Sampling
from tests.chats import MARKERS, SPECIAL, ids_of, tokenizer
from tests.draft_node.parsing.texts import HERMES, MISTRAL, SCHEMAS

TOKENIZER = tokenizer()
TEXTS = TokenTexts(TOKENIZER)
SHOWN = [TOKENIZER.backend_tokenizer.token_to_id(one) for one in ("[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]")]
HIDDEN = frozenset(i for i, token in TOKENIZER.added_tokens_decoder.items() if token.special) - frozenset(SHOWN)
HERE = ParserSettings(HERMES, None, SCHEMAS)
THERE = ParserSettings(MISTRAL, HIDDEN, SCHEMAS)
CALL = '<tool_call>\n{"name": "f", "arguments": {"n": 1}}\n</tool_call>'


def answer_to(parser: ParserSettings, prompt: tuple[int, ...] = (), **options: Any) -> OutputProcessor:
    return OutputProcessor(
        TOKENIZER, TEXTS, Generation(bytes(16), prompt, Sampling(), 99, is_chat=True, **options), parser
    )


def written(
    text: str,
    parser: ParserSettings,
    cuts: Sequence[int] = (),
    stops: Sequence[str] = (),
    *,
    min_tokens: int = 0,
) -> tuple[OutputProcessor, list[Piece]]:
    """The answer to these tokens, delivered in parts."""
    ids = ids_of(text)
    answer = answer_to(parser, stop=tuple(stops), min_tokens=min_tokens)
    borders = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    items: list[Deliver | Finish] = [Deliver(tuple(ids[start:end])) for start, end in pairwise(borders)]
    pieces = list[Piece]()
    for item in [*items, Finish("stop")]:
        if not answer.is_complete:
            pieces.append(answer.take(item))
    return answer, pieces


def told(pieces: Sequence[Piece]) -> tuple[str, str, list[Call | None]]:
    parts = [part for piece in pieces for part in piece.parts]
    assert "".join(piece.text for piece in pieces) == "".join(part.text for part in parts if isinstance(part, Content))
    calls = [part for part in parts if isinstance(part, Call)]
    content, thinking = ("".join(part.text for part in parts if isinstance(part, kind)) for kind in (Content, Thinking))
    return content, thinking, [*calls]


def test_stop_strings_are_looked_for_in_the_content_alone() -> None:
    text = f"<think>\nstop\n</think>\n\nst{CALL}\nop stop it"
    answer, pieces = written(text, HERE, stops=["stop", "arguments"])
    assert told(pieces) == ("stop ", "stop", [Call("f", '{"n": 1}')])  # `st` and `op` are not next to each other
    assert (answer.stop, answer.reason) == ("stop", "stop")
    answer, pieces = written("stop it", HERE, stops=["stop"], min_tokens=6)
    assert (told(pieces)[0], answer.stop) == ("stop it", None)


@pytest.mark.parametrize("stop", ["\n\n", "User:", "\n\nUser:"])
@pytest.mark.parametrize("cuts", [(), range(200)])
def test_a_stop_string_after_a_call_is_no_content(stop: str, cuts: Sequence[int]) -> None:
    _, pieces = written(f"{CALL}\n{CALL}{stop}", HERE, cuts, ["\n\n", "User:"])
    assert told(pieces) == ("", "", [Call("f", '{"n": 1}')] * 2)


PIECES = st.sampled_from([*MARKERS, *SPECIAL, CALL, "the ", "é", "日本", "😀", "\n", " ", "st", "op", '{"', "[1]"])


@pytest.mark.parametrize("parser", [HERE, THERE])
@given(st.lists(PIECES, max_size=10).map("".join), st.lists(st.integers(0, 60), max_size=6))
@settings(max_examples=150)
def test_deliveries_do_not_matter(parser: ParserSettings, text: str, cuts: list[int]) -> None:
    answer, pieces = written(text, parser, cuts, ["stop"])
    other, whole = written(text, parser, (), ["stop"])
    assert told(pieces) == told(whole)
    assert (answer.stop, answer.num_tokens, answer.num_thinking) == (other.stop, other.num_tokens, other.num_thinking)
    if not any(mark in text for mark in (*MARKERS, *SPECIAL, CALL)):  # what is taken out may leave `st` beside `op`
        assert "stop" not in told(pieces)[0]


R1 = ParserSettings(Formats(THINKING["think"]), HIDDEN)
SPELLED = [token for char in "\nso\n</think>\n no\n" for token in ids_of(char)]


CLOSES = ids_of("</think>")[0]
OPENED = tuple(ids_of("<think>\n"))
"""A prompt that opens the thinking."""


@pytest.mark.parametrize("num_at_once", [1, 2, 100])
@pytest.mark.parametrize("opener", ["", "<think>"])
@pytest.mark.parametrize(
    ("closes", "thought", "said"), [(None, "so", "no\n</think>\n\n{}"), (CLOSES, "so\n</think>\n no", "{}")]
)
def test_thinking_ends_at_the_token_of_its_marker_if_there_is_one(
    num_at_once: int, opener: str, closes: int | None, thought: str, said: str
) -> None:
    """So it may name the marker, which it then writes with other tokens."""
    ids = [*ids_of(opener), *SPELLED, *ids_of("</think>\n\n{}")]
    answer = answer_to(replace(R1, closes=closes), () if opener else OPENED)
    pieces = [answer.take(Deliver(tuple(ids[i : i + num_at_once]))) for i in range(0, len(ids), num_at_once)]
    assert told([*pieces, answer.take(Finish("stop"))]) == (said, thought, [])
    assert answer.num_thinking == len(ids) - len(ids_of("\n\n{}" if closes else " no\n</think>\n\n{}")) - (not closes)


def test_thinking_that_never_ends_is_no_content() -> None:
    answer = answer_to(replace(R1, closes=CLOSES), OPENED)
    pieces = [answer.take(Deliver(tuple(SPELLED[:-1]))), answer.take(Finish("length"))]
    assert told(pieces) == ("", "so\n</think>\n no", [])
