"""Special tokens in constraints: their names are text like any other, and only a grammar that names one allows it."""

import json
import random

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models

from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.grammars import compiled_matcher
from goodspeed.constraint.tokens import TokenTable
from goodspeed.errors import ConstraintError
from goodspeed.wire.generation import Constraint
from tests.chats import ids_of, tokenizer, vocabulary

CONSTRAINTS = Constraints(vocabulary())
NAMED = Constraint("grammar", 'start: "a" <think> "<think>" /<think>/ <[270-271]> "b" // <think>')


def walk(constraint: Constraint, table: TokenTable, seed: int = 0) -> list[int]:
    """Returns a random text that the constraint allows, up to its end."""
    matcher, choose, found = compiled_matcher(constraint, table), random.Random(seed), list[int]()
    while len(found) < 40:
        forced = matcher.compute_ff_tokens()
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        tokens = np.flatnonzero(bits).tolist()
        if forced:
            assert tokens == [forced[0]]
        token = choose.choice(tokens)
        if token in table.eos_ids:
            return found
        assert matcher.consume_token(token), matcher.get_error()
        found.append(token)
    return found


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        (Constraint("choice", json.dumps(["a <think> b"])), "a <think> b"),
        (Constraint("choice", json.dumps(["<|im_end|>b"])), "<|im_end|>b"),
        (Constraint("regex", "<(thi)nk>{2}"), "<think>>"),
        (Constraint("json_schema", json.dumps({"const": "<tool_call>[ARGS]"})), '"<tool_call>[ARGS]"'),
        (Constraint("grammar", 'start: "<" tail\ntail: "/tool_call>"'), "</tool_call>"),
    ],
)
def test_the_text_of_a_special_token_can_be_forced(constraint: Constraint, text: str) -> None:
    found = walk(constraint, CONSTRAINTS.table)
    assert tokenizer().decode(found) == text
    assert not set(found) & set(CONSTRAINTS.table.special_ids.values())


def test_a_grammar_names_special_tokens() -> None:
    think, after = CONSTRAINTS.table.special_ids["<think>"], CONSTRAINTS.table.special_ids["</think>"]
    found = walk(NAMED, CONSTRAINTS.table)
    assert [found[0], *found[-1:]] == [*ids_of("a"), *ids_of("b")]
    assert found[1] == think
    assert found[-2] in (think, after)
    assert tokenizer().decode(found[2:-2]) == "<think><think>"
    with pytest.raises(ConstraintError, match="unknown special token"):
        CONSTRAINTS.get(Constraint("grammar", "start: <thought>"))


def test_no_text_has_special_tokens() -> None:
    special = set(CONSTRAINTS.table.special_ids.values())
    for seed in range(20):
        assert not special & set(walk(Constraint("json_schema", '{"type": "string"}'), CONSTRAINTS.table, seed))
        assert not special & set(walk(Constraint("grammar", "start: /(.|\\n)*/"), CONSTRAINTS.table, seed))


def bpe() -> Tokenizer:
    """Special tokens have merges, as in tokenizers that were converted from SentencePiece."""
    names = ["<unk>", "<s>", "<", "s", ">", "a", "b", "\u2581", "<s", "s>"]
    merges = [("<", "s"), ("s", ">"), ("<s", ">"), ("<", "s>"), ("<s>", "a")]
    vocab = {name: i for i, name in enumerate([*names, "<s>a"])}
    return Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True))


def unigram() -> Tokenizer:
    pieces = [("<unk>", 0.0), ("<s>", 0.0), *((piece, -2.0) for piece in ("<", "s", ">", "a", "b", "\u2581"))]
    return Tokenizer(models.Unigram(pieces, unk_id=0))


@pytest.mark.parametrize("made", [bpe, unigram])
def test_special_tokens_in_the_models_own_vocabulary(made) -> None:
    backend = made()
    backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in ("<unk>", "<s>")])
    assert backend.encode("<s>").ids == [1]
    table = TokenTable.read(backend.to_str(), [1])
    assert table.special_ids == {"<unk>": 0, "<s>": 1}
    found = walk(Constraint("choice", json.dumps(["a<s>b", "a<s>a"])), table)
    assert "".join(map(backend.id_to_token, found)) in ("a<s>b", "a<s>a")
    assert found[-1] != 1


@pytest.mark.parametrize("made", [bpe, unigram])
def test_tokens_for_tags_of_html_are_text(made) -> None:
    """As in Gemma's tokenizers, where they are added tokens; llguidance would take them for special ones."""
    read = json.loads(made().to_str())
    vocab = read["model"]["vocab"]
    for name in ("<table>", "</b>", "<think>"):
        if isinstance(vocab, dict):
            vocab[name] = len(vocab)
        else:
            vocab.append([name, -2.0])
    backend = Tokenizer.from_str(json.dumps(read))
    backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens([AddedToken("<s>", special=True, normalized=False)])
    backend.add_tokens([AddedToken(name, normalized=False) for name in ("<table>", "</b>", "<think>")])
    table = TokenTable.read(backend.to_str(), [1])
    assert table.special_ids.keys() == {"<s>", "<think>"}
    matcher = compiled_matcher(Constraint("regex", "(<table>|a|<think>)*"), table)
    bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
    allowed = {backend.id_to_token(token) for token in np.flatnonzero(bits).tolist()}
    assert {"<table>", "<", "a"} <= allowed
    assert "<think>" not in allowed
    assert matcher.try_consume_tokens(backend.encode("<table>").ids) == 1
    assert matcher.is_accepting()
