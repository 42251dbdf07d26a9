"""Tests what every engine does (`goodspeed.engine.base.Engine`). For one of another package, inherit from `AnyEngine`.

`docs/ENGINE.md` shows how. Nothing here knows which engine it is.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from goodspeed.engine import engines
from goodspeed.engine.base import Checkpoint, Engine
from goodspeed.engine.paged.chunks import Chunk, TreePath
from goodspeed.errors import ConfigError, PoolExhausted, PromptError

Texts = Mapping[str, list[int]]


class AnyEngine:
    """The tests; a class that inherits them has a fixture `checkpoint`, of the scope `class`."""

    exact = False
    """True if the engine promises the same bits in any batch; else logits may differ by 1e-4 of the largest."""

    @pytest.fixture(scope="class")
    @classmethod
    def checkpoint(cls) -> Checkpoint:
        """Loads a model with a context of at least 200 tokens."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def texts(cls, checkpoint: Checkpoint) -> Texts:
        """Texts of several pages; two have the same beginning."""
        rng = random.Random(1)
        drawn = [rng.randrange(min(250, checkpoint.num_tokens)) for _ in range(400)]
        return {"a": drawn[:110], "b": drawn[:70] + drawn[200:230], "c": drawn[230:360], "d": [3, 4, 5, 6, 7] * 6}

    @pytest.fixture(scope="class")
    @classmethod
    def expected(cls, checkpoint: Checkpoint, texts: Texts) -> dict[str, Tensor]:
        """Logits [num_tokens, vocab_size] of each text, computed token by token."""
        forward = cls.start(checkpoint).forward
        return {key: torch.cat([forward([Chunk(key, [one], 1)]) for one in text]) for key, text in texts.items()}

    @staticmethod
    def start(checkpoint: Checkpoint, num_tokens: int = 640, **options: Any) -> Engine:
        """Starts an engine with pages for so many tokens."""
        page_size = engines.start(checkpoint, num_pages=1).pool.page_size
        return engines.start(checkpoint, num_pages=-(-num_tokens // page_size), **options)

    def check(self, found: Tensor, expected: Tensor) -> None:
        assert found.dtype == torch.float32
        largest = expected[expected.isfinite()].abs().max().item()
        torch.testing.assert_close(found, expected, atol=0 if self.exact else 1e-4 * largest, rtol=0)

    # -- logits ----------------------------------------------------------------------------------------------------

    def test_logits_of_chunks_in_their_order(self, checkpoint, texts, expected):
        engine = self.start(checkpoint)
        chunks = [Chunk("c", texts["c"][:50], 3), Chunk("a", texts["a"][:1], 1), Chunk("d", texts["d"], 0)]
        found = engine.forward(chunks)
        self.check(found, torch.cat((expected["c"][47:50], expected["a"][:1])))
        assert engine.forward([Chunk("e", [1, 2], 0)]).shape == (0, checkpoint.vocab_size)
        found = engine.forward([Chunk("d", [1], 0), Chunk("a", texts["a"][1:90], 89), Chunk("c", texts["c"][50:51], 1)])
        self.check(found, torch.cat((expected["a"][1:90], expected["c"][50:51])))

    def test_columns_beyond_the_tokenizer_are_masked(self, checkpoint: Checkpoint) -> None:
        narrow = replace(checkpoint, num_tokens=200)
        found = self.start(narrow).forward([Chunk("a", [1, 2, 3], 3)])
        assert torch.isneginf(found[:, 200:]).all()
        assert found[:, :200].isfinite().all()

    def test_masks_are_computed_as_tokens_and_leave_no_keys(self, checkpoint: Checkpoint, texts: Texts) -> None:
        text, more = texts["a"][:63], [20, 21]  # masks on a page of their own
        engine, plain = self.start(replace(checkpoint, mask_id=7, num_parallel=4)), self.start(checkpoint)
        found = engine.forward([Chunk("b", text[:5], 1), Chunk("a", text, 4, num_masks=3)])
        wanted = plain.forward([Chunk("a", [*text, 7, 7, 7], 4)])
        assert torch.isneginf(found[:, 7]).all()
        self.check(found[1:], without(wanted, 7))
        plain.pool.truncate("a", len(text))
        plain.forward([Chunk("b", text[:5], 1)])
        assert (engine.pool.length("a"), engine.pool.num_free) == (len(text), plain.pool.num_free)
        found, wanted = (each.forward([Chunk("a", more, 2)]) for each in (engine, plain))
        self.check(found, without(wanted, 7))
        with pytest.raises(ValueError, match="masks need a checkpoint"):
            plain.forward([Chunk("c", [1], 1, num_masks=3)])

    @pytest.mark.parametrize("seed", range(4))
    def test_any_schedule(self, checkpoint: Checkpoint, texts: Texts, expected: dict[str, Tensor], seed: int) -> None:
        """Pieces, drafts that are taken back, sessions that end and begin again, found pages, other sessions."""
        rng = random.Random(seed)
        engine = self.start(checkpoint, 320, prefix_cache=True)
        num_found = 0
        for _ in range(40):
            for key, text in texts.items():
                length = engine.pool.length(key)
                what = rng.random()
                if what < 0.1:
                    engine.pool.free(key)
                elif what < 0.35 and length:
                    left = engine.pool.truncate(key, length - rng.randint(0, min(9, length)))
                    assert left == engine.pool.length(key)
                engine.pool.publish(key, b"scope", text[: engine.pool.length(key)])
            keys = rng.sample(list(texts), rng.choice([1, 1, 2, 3, 4]))
            num_found += adopt(engine, {key: texts[key] for key in keys if rng.random() < 0.7})
            if chunks := draw_chunks(rng, engine, texts, keys):
                found = engine.forward(chunks)
                rows = list[Tensor]()
                for chunk in chunks:
                    end = engine.pool.length(chunk.key)
                    rows.append(expected[str(chunk.key)][end - chunk.num_logits : end])
                if len(found):
                    self.check(found, torch.cat(rows))
        assert num_found

    # -- sessions --------------------------------------------------------------------------------------------------

    def test_pages_return_when_a_session_is_truncated_or_ends(self, checkpoint: Checkpoint) -> None:
        engine = self.start(checkpoint)
        size, num_pages = engine.pool.page_size, engine.pool.num_free
        engine.forward([Chunk("a", [7] * (2 * size + 1), 0), Chunk("b", [1], 0)])
        assert engine.pool.num_free == num_pages - 4
        assert engine.pool.truncate("a", size) == size
        assert engine.pool.num_free == num_pages - 2
        assert engine.pool.truncate("b", 0) == 0
        for key in ("a", "b", "unknown"):
            engine.pool.free(key)
        assert (engine.pool.num_free, list(engine.pool)) == (num_pages, [])

    def test_adopted_pages_are_shared_and_not_written(self, checkpoint, texts, expected):
        engine = self.start(checkpoint, prefix_cache=True)
        size = engine.pool.page_size
        engine.forward([Chunk("a", texts["a"], 1), Chunk("b", texts["b"][:9], 1)])
        engine.pool.publish("a", b"s", texts["a"])
        free = engine.pool.num_free
        assert adopt(engine, {"c": texts["a"]}, scope=b"s")
        start = engine.pool.length("c")
        assert (start % size, engine.pool.num_free) == (0, free)
        self.check(engine.forward([Chunk("c", texts["a"][start:], 1)]), expected["a"][-1:])
        assert engine.pool.truncate("c", size + 3) == size  # within a shared page
        engine.forward([Chunk("c", [1] * size, 1)])
        assert engine.pool.truncate("a", 109) == 109
        self.check(engine.forward([Chunk("a", texts["a"][109:], 1)]), expected["a"][-1:])

    def test_kept_drafts(self, checkpoint: Checkpoint, texts: Texts, expected: dict[str, Tensor]) -> None:
        engine, text = self.start(checkpoint), texts["a"]
        engine.forward([Chunk("a", text[:40], 0), Chunk("b", text[:31], 0)])
        engine.forward([Chunk("a", [*text[40:43], 9, 9], 5), Chunk("b", [9, 9, 9], 3)])
        engine.keep([TreePath("a", 40, (0, 1, 2)), TreePath("b", 31, ())])
        assert (engine.pool.length("a"), engine.pool.length("b")) == (43, 31)
        found = engine.forward([Chunk("b", text[31:60], 1), Chunk("a", text[43:50], 1)])
        self.check(found, expected["a"][[59, 49]])
        for path in (TreePath("a", 45, (1, 0)), TreePath("a", 45, (5,)), TreePath("a", 51, ())):
            with pytest.raises(ValueError, match="not a path"):
                engine.keep([path])

    def test_trees(self, checkpoint: Checkpoint, texts: Texts, expected: dict[str, Tensor]) -> None:
        engine, text = self.start(checkpoint), texts["a"]
        tree = Chunk("a", [*text[:42], 9, *text[42:44]], 4, [-1, 0, 0, 2])
        if not engine.has_trees:
            with pytest.raises(ValueError, match="chains only"):
                engine.forward([tree])
            engine.forward([Chunk("a", text[:44], 0)])
            with pytest.raises(ValueError, match="chains only"):
                engine.keep([TreePath("a", 40, (1, 3))])
            return
        self.check(engine.forward([tree])[[0, 2, 3]], expected["a"][41:44])
        engine.keep([TreePath("a", 41, (0, 2, 3))])
        self.check(engine.forward([Chunk("a", text[44:50], 1)]), expected["a"][49:50])

    def test_cleared_sessions_begin_again_and_harm_nobody(self, checkpoint, texts, expected):
        engine = self.start(checkpoint, prefix_cache=True)
        engine.forward([Chunk("a", texts["a"], 0), Chunk("c", texts["c"][:60], 0)])
        engine.pool.publish("a", b"scope", texts["a"])
        assert adopt(engine, {"b": texts["b"]})
        engine.clear(["a"])
        assert not engine.pool.find("new", b"scope", texts["a"]).num_tokens
        engine.pool.free("a")
        start = engine.pool.length("b")
        found = engine.forward([Chunk("b", texts["b"][start:], 1), Chunk("c", texts["c"][60:], 1)])
        self.check(found, torch.cat((expected["b"][-1:], expected["c"][-1:])))
        self.check(engine.forward([Chunk("a", texts["a"], 1)]), expected["a"][-1:])

    # -- refusals change nothing -----------------------------------------------------------------------------------

    def test_an_exhausted_pool(self, checkpoint: Checkpoint, texts: Texts, expected: dict[str, Tensor]) -> None:
        engine, text = self.start(checkpoint, 2), texts["a"]
        more = self.start(checkpoint, 1 + engine.pool.page_size)
        size = more.pool.page_size
        more.forward([Chunk("a", text[: size - 1], 0)])
        with pytest.raises(PoolExhausted, match="2 pages are needed, but 1 of 2"):
            more.forward([Chunk("a", text[size - 1 : size + 1], 1), Chunk("b", [1], 1)])
        assert (more.pool.length("a"), "b" in more.pool, more.pool.num_free) == (size - 1, False, 1)
        self.check(more.forward([Chunk("a", text[size - 1 : size + 1], 1)]), expected["a"][size : size + 1])

    def test_ids_that_are_not_the_tokenizers(self, checkpoint: Checkpoint) -> None:
        engine = self.start(replace(checkpoint, num_tokens=200))
        for token in (-1, 200, checkpoint.vocab_size):
            with pytest.raises(PromptError, match="0 to 199"):
                engine.forward([Chunk("new", [5], 1), Chunk("other", [1, token], 1)])
        assert list(engine.pool) == []

    def test_a_session_that_outgrows_the_context(self, checkpoint: Checkpoint) -> None:
        engine = self.start(replace(checkpoint, context_len=40))
        engine.forward([Chunk("long", [7] * 40, 0)])
        with pytest.raises(PromptError, match="41 tokens do not fit"):
            engine.forward([Chunk("new", [7], 1), Chunk("long", [7], 1)])
        assert (engine.pool.length("long"), "new" in engine.pool) == (40, False)

    def test_impossible_chunks_are_a_bug(self, checkpoint: Checkpoint) -> None:
        engine = self.start(checkpoint)
        for chunk in (Chunk("x", [], 0), Chunk("x", [1], 2), Chunk("x", [1], -1)):
            with pytest.raises(ValueError, match="not possible"):
                engine.forward([chunk])
        with pytest.raises(ValueError, match="once"):
            engine.forward([Chunk("x", [1], 0), Chunk("x", [2], 1)])
        with pytest.raises(ValueError, match="needs sessions"):
            engine.forward([])
        assert list(engine.pool) == []

    # -- memory ----------------------------------------------------------------------------------------------------

    def test_pages_are_for_no_fewer_tokens_than_were_asked_for(self, checkpoint: Checkpoint) -> None:
        for num_pages, page_size in ((3, 16), (1, 5), (5, 24)):
            engine = engines.start(checkpoint, num_pages=num_pages, page_size=page_size)
            engine.forward([Chunk("a", [7] * (num_pages * page_size), 1)])
            assert engine.pool.num_pages == -(-num_pages * page_size // engine.pool.page_size)

    def test_memory_is_a_share_of_the_machines(self, checkpoint: Checkpoint) -> None:
        alone = engines.start(checkpoint, memory_fraction=2e-3).pool
        assert alone.num_pages > 1
        per_token = engines.token_bytes(checkpoint)
        shared = engines.start(checkpoint, memory_fraction=2e-3, beside_bytes=3 * per_token).pool
        assert shared.num_pages == pytest.approx(alone.num_pages / 4, abs=1)
        for options, told in (
            ({"memory_fraction": 1e-12}, "hold no page"),
            ({"memory_fraction": 1.5}, "fraction"),
            ({"num_pages": 1 << 40}, "cannot be allocated"),
        ):
            with pytest.raises(ConfigError, match=told):
                engines.start(checkpoint, **options)


def adopt(engine: Engine, texts: Texts, scope: bytes = b"scope") -> int:
    """Gives sessions without pages those of the prefix cache; returns how many got some."""
    num_found = 0
    for key, text in texts.items():
        if key not in engine.pool and (hit := engine.pool.find(key, scope, text)).num_tokens:
            engine.pool.adopt(key, hit)
            num_found += 1
    return num_found


def without(logits: Tensor, token: int) -> Tensor:
    """Returns logits by which a token is never drawn."""
    return logits.index_fill(1, torch.tensor([token]), -torch.inf)


def draw_chunks(rng: random.Random, engine: Engine, texts: Texts, keys: Sequence[str]) -> list[Chunk]:
    """Draws how each text goes on, within the free pages."""
    chunks, free = list[Chunk](), engine.pool.num_free
    for key in keys:
        length = engine.pool.length(key)
        count = min(rng.choice([1, 1, 1, 2, 3, 5, 17, 40, 90]), len(texts[key]) - length)
        needed = engine.pool.pages_needed(key, count)
        if count and needed <= free:
            free -= needed
            chunks.append(Chunk(key, texts[key][length : length + count], rng.choice([count, count, 1, 0])))
    return chunks
