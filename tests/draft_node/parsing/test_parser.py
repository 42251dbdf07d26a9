"""Texts of all families taken apart; however they are cut, the parts are those of the whole, and nothing is lost."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draft_node.parsing.formats import TOOLS, Call, Content, Formats, ThinkingFormat
from tests.draft_node.parsing.texts import ALL, CASES, HERMES, Case, parse

MARKERS = sorted({marker for formats in ALL.values() for marker in formats.markers})
CALLS = ['{"name": "f", "arguments": {}}', '{"name":"g","parameters":{"a":"</tool_call>"}}']
PIECES = st.one_of(
    st.sampled_from([*MARKERS, *CALLS, "{", "<parameter=a>", "</parameter>", "</function>", "f", "\n", " "]),
    st.text(max_size=6),
    st.text('<>/{}[]"\\: \nthinkTOOL_CALARGSfuncio=;', max_size=12),
)


def all_cuts(tokens: tuple[str, ...]) -> Iterator[list[str]]:
    """Every way in which neighbouring tokens may come together: 2^(n - 1)."""
    for cuts in range(1 << (len(tokens) - 1)):
        pieces = [tokens[0]]
        for i, token in enumerate(tokens[1:]):
            if cuts >> i & 1:
                pieces.append(token)
            else:
                pieces[-1] += token
        yield pieces


def bare(text: str, thinking: ThinkingFormat | None) -> str:
    """The text without whitespace and markers of reasoning, also without markers that this joins."""
    left, before = "".join(text.split()), ""
    while thinking is not None and left != before:
        before, left = left, left.replace(thinking.opens, "").replace(thinking.closes, "")
    return left


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_parts_of_a_text_in_every_chunking(case: Case) -> None:
    whole = parse(case.formats, case.text, is_thinking=case.is_thinking)
    assert whole == case.parts
    text, size = case.text, len(case.text)
    chunkings = [*all_cuts(case.tokens), list(text)]
    chunkings += [[text[:i], text[i:j], text[j:]] for i in range(0, size, 3) for j in range(i, size, 5)]
    chunkings += [[text[:i], text[i:]] for i in range(1, size)]
    for pieces in chunkings:
        assert "".join(pieces) == text
        assert parse(case.formats, *pieces, is_thinking=case.is_thinking) == whole


@pytest.mark.parametrize("rest", ["\n", "\n<", "\n</tool", "\n</tool_call"])
def test_a_text_cut_within_the_end_of_a_call_says_nothing_more(rest: str) -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {}}'
    (found,) = parse(Formats(tools=TOOLS["hermes"]), call + rest)
    assert isinstance(found, Call)


@pytest.mark.thorough
@pytest.mark.parametrize("formats", ALL.values(), ids=ALL.keys())
@given(pieces=st.lists(PIECES, max_size=12), is_thinking=st.booleans())
@settings(max_examples=150)
def test_hostile_texts_lose_nothing_however_they_are_cut(formats, pieces, is_thinking):
    text = "".join(pieces)
    parts = parse(formats, *pieces, is_thinking=is_thinking)
    assert parse(formats, text, is_thinking=is_thinking) == parts
    assert parse(formats, *text, is_thinking=is_thinking) == parts
    said = [part.text for part in parts if not isinstance(part, Call)]
    if len(said) == len(parts):
        assert bare("".join(said), formats.thinking) == bare(text, formats.thinking)


@pytest.mark.thorough
@pytest.mark.parametrize("formats", ALL.values(), ids=ALL.keys())
@pytest.mark.parametrize(
    "piece", ['<tool_call>{"', "[TOOL_CALLS]", "<|python_tag|>{", "<function=f><parameter=a>", "</parameter>", "<", " "]
)
def test_the_work_grows_with_the_text_and_no_faster(formats: Formats, piece: str) -> None:
    text = piece * (60_000 // len(piece))
    assert parse(formats, text) == [Content(text)]


@pytest.mark.parametrize(
    "body",
    [
        "[" * 5000 + "]" * 5000,
        '{"name": "f", "arguments": ' + '{"a":' * 5000 + "1" + "}" * 5001,
        '{"name": "\\ud800"}',
        '{"name": "f", "arguments": {"a": NaN}}',
    ],
    ids=["lists", "objects", "no text", "no number"],
)
def test_deep_and_odd_json_is_content(body: str) -> None:
    text = f"<tool_call>{body}</tool_call>"
    assert parse(HERMES, text) == [Content(text)]


@pytest.mark.parametrize(
    ("formats", "call"),
    [
        (HERMES, '<tool_call>{"name": "f", "arguments": ARGUMENTS}'),
        (HERMES, '<tool_call>{"name": "f", "arguments": "QUOTED"}'),
        (ALL["mistral"], "[TOOL_CALLS]f[ARGS]ARGUMENTS"),
        (ALL["qwen3_coder"], "<function=f><parameter=all>VALUE</parameter></function>"),
    ],
)
def test_arguments_that_parsers_of_json_refuse_are_content(formats: Formats, call: str) -> None:
    def written(num_levels: int, call: str = call) -> str:
        value = "[" * (num_levels - 1) + "]" * (num_levels - 1)
        arguments = f'{{"all": {value}}}'
        told = call.replace("ARGUMENTS", arguments).replace("QUOTED", arguments.replace('"', '\\"'))
        return told.replace("VALUE", value)

    assert parse(formats, written(32)) == [Call("f", written(32, "ARGUMENTS"))]
    for num_levels in (33, 129, 270):
        assert parse(formats, written(num_levels)) == [Content(written(num_levels))]
    for num_levels in range(900, 1000, 5):  # as deep as Python's own parser and writer go
        assert len(parse(formats, written(num_levels))) == 1


@pytest.mark.parametrize("value", ["[" * 40, '"' + "[" * 40, "\\", '\\"' + "{" * 40 + '"', "\n" + "}" * 40])
def test_brackets_in_strings_are_no_levels(value: str) -> None:
    arguments = json.dumps({"a": value, "b": [value]})
    for written in (arguments, json.dumps(arguments)):
        call = f'<tool_call>{{"name": "f", "arguments": {written}}}</tool_call>'
        assert parse(HERMES, call) == [Call("f", arguments)]
