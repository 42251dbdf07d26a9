"""A draft source of one's own: the page's, found by name, and what it may not do."""

import re
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from draft_node.config import DraftConfig
from draft_node.core.generation import Generation
from draft_node.model.drafting import Drafting
from draft_node.process import assembly
from goodspeed.app import reference
from goodspeed.drafting.custom_source import SOURCES, SourceDrafter, create
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.drafting.tree import Nodes
from goodspeed.engine.base import Checkpoint
from goodspeed.errors import ConfigError
from goodspeed.wire.messages import Sampling
from tests.fakes import session_id
from tests.memory_network import MemoryNetwork
from tests.micro import make_engine
from tests.together.line import Line
from tests.verify_node.model.desk import TARGET

BOOT = b"aaaaaaaa"
MINE = r"\S+/mine.py"


@pytest.fixture
def mine(tmp_path: Path) -> str:
    """The page's file; returns the name of its class."""
    page = Path(__file__).parents[2] / "docs" / "SOURCE.md"
    found = re.search(r"cat > mine.py <<'END'\n(.*?)\nEND\n", page.read_text(), re.DOTALL)
    (file := tmp_path / "mine.py").write_text(found.group(1))
    return f"{file}:Mine"


class Fixed:
    """Drafts the same whatever the text is; fails for texts by their last token."""

    sick: Collection[int] = ()

    def __init__(self, *drafted: Any) -> None:
        self.drafted: Any = drafted
        self.rooms: list[int] = []

    def begin(self, asked: Any) -> "Fixed":
        return self

    def draft(self, text: Sequence[int], drafted: Sequence[int], room: int) -> Any:
        if text[-1] in self.sick:
            raise ZeroDivisionError(text[-1])
        self.rooms.append(room)
        return self.drafted


def asked(number: int = 1, *, prompt: tuple[int, ...] = (5, 6, 7), **changes: Any) -> Propose:
    request = Generation(session_id(number), prompt, Sampling(temperature=0.0), max_tokens=60)
    return replace(Propose(request, 1, 1, prompt, 8, max_depth=8, wants_alternatives=True), **changes)


def test_only_first_alternatives_are_drafted_where_the_verify_node_takes_no_trees() -> None:
    source = Fixed([10, 20, 11, 21], [0.9, 0.8, 0.9, 0.8], [-1, -1, 0, 1])
    assert drafted(source, asked(wants_alternatives=False)).tokens == (10, 11)
    assert drafted(source, asked()).tokens == (10, 20, 11, 21)


def make_drafter(source: Any, vocab_size: int = 100) -> SourceDrafter:
    drafter = SourceDrafter(source)
    drafter.vocab_size = vocab_size
    return drafter


def step(drafter: SourceDrafter, propose: Propose) -> Proposed:
    """Returns what a step drafts, in which nothing else is asked for."""
    drafter.add(propose)
    [proposed] = drafter.step()
    assert not drafter.busy
    return proposed


def drafted(source: Any, propose: Propose, vocab_size: int = 100) -> Proposed:
    return step(make_drafter(source, vocab_size), propose)


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_texts_are_the_targets_own_over_a_bad_line_with_the_pages_source(mine: str, temperature: float) -> None:
    line, sampling = Line(4), Sampling(temperature, seed=3)
    line.drafter = drafter = SourceDrafter(create(mine))  # type: ignore[assignment]
    prompts = [(number, *(1, 2, 3, 4) * 3) for number in range(1, 4)]
    line.run(*(Generation(session_id(n), prompt, sampling, max_tokens=60) for n, prompt in enumerate(prompts)))
    for user, prompt in zip(line.users.values(), prompts, strict=True):
        assert user.tokens == list(reference.generate(TARGET, make_engine(TARGET), prompt, sampling, 60, ()))
    assert sum(user.session.statistics.drafted["model"] for user in line.users.values()) > 0
    assert not drafter._texts


def test_a_step_asks_for_one_text() -> None:
    drafter = make_drafter(Fixed([1], [0.9]))
    for number in range(3):
        drafter.add(asked(number, length=0 if number == 1 else 8))
    found = [[one.session_id for one in drafter.step()] for _ in range(2)]
    assert found == [[session_id(0)], [session_id(1), session_id(2)]]
    assert not drafter.busy


def test_a_chain_and_a_tree_are_drafted_behind_the_likeliest_leaf() -> None:
    chain = drafted(Fixed([1, 2], [0.9, 0.8]), asked())
    assert (chain.tokens, chain.probabilities, chain.parents) == ((1, 2), (0.9, 0.8), (-1, 0))
    tree = drafted(Fixed([1, 2, 3], [0.5, 0.3, 0.9], [-1, -1, 1]), asked(tree=Nodes((9,), (0.9,), (-1,))))
    assert (tree.tokens, tree.parents) == ((1, 2, 3), (0, 0, 2))


def test_what_does_not_fit_is_dropped_with_all_that_follows() -> None:
    source = Fixed([1, 2, 3, 4], [0.9] * 4)
    assert drafted(source, asked(max_depth=3, tree=Nodes((9,), (0.9,), (-1,)))).tokens == (1, 2)
    assert source.rooms == [2]
    assert drafted(source, asked(), vocab_size=3).tokens == (1, 2)
    assert drafted(Fixed([], []), asked()).tokens == ()
    assert drafted(source, asked(length=0)).tokens == ()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "draft returned None; it must return lists: token ids, as many probabilities, and of a tree as many"),
        (([1], []), "draft returned ([1], []); it must return lists"),
        (([-1], [0.5]), "draft returned the token id -1; it must be 0 or more"),
        (([1.5], [0.5]), "draft returned ([1.5], [0.5]); it must return lists"),
        (([1], [1.5]), "draft returned the probability 1.5; it must lie within 0 and 1"),
        (([1], [float("nan")]), "draft returned the probability nan; it must lie within 0 and 1"),
        (([1, 2], [0.5, 0.5], [-1]), "it must return lists"),
        (([1, 2], [0.5, 0.5], [1, -1]), "the predecessor 1 for token 0; it must be the index of one before, or -1"),
        (([1], [0.5], [-2]), "draft returned the predecessor -2 for token 0"),
    ],
)
def test_what_is_no_draft_costs_its_text_the_drafts(answer: Any, told: str, caplog: pytest.LogCaptureFixture) -> None:
    source = Fixed()
    source.drafted = answer
    drafter = make_drafter(source)
    assert step(drafter, asked()).tokens == ()
    assert "the draft source failed for one text, which continues without drafts: ValueError: draft" in caplog.text
    assert told in caplog.text
    source.drafted = [1], [0.9]
    assert step(drafter, asked()).tokens == ()
    assert len(source.rooms) == 1
    drafter.forget(session_id(1))
    assert step(drafter, asked()).tokens == (1,)


def test_what_begin_returns_must_draft(caplog: pytest.LogCaptureFixture) -> None:
    class Unfit:
        def begin(self, asked: Any) -> Any:
            return None

    assert drafted(Unfit(), asked()).tokens == ()
    assert "TypeError: begin returned None, which has no method draft(text, drafted, room); see docs" in caplog.text


def of_text(number: int) -> Propose:
    return asked(number, prompt=(5, number))


async def test_a_text_for_which_the_source_fails_costs_no_other_text_its_drafts(caplog) -> None:
    source = Fixed([1], [0.9])
    source.sick = {2}
    drafting = Drafting(make_drafter(source))

    async def tokens_of(number: int) -> tuple[int, ...]:
        if (refused := drafting.want(of_text(number), time.monotonic())) is not None:
            return refused.tokens
        [proposed] = await drafting.take()
        return proposed.tokens

    assert [await tokens_of(number) for number in (1, 2, 3, 2, 1)] == [(1,), (), (1,), (), (1,)]
    assert not drafting.breaker.num_failures
    source.sick = {2, 4, 5, 6}
    assert [await tokens_of(number) for number in (4, 5, 1)] == [(), (), ()]
    assert "the draft source failed; its sessions continue without drafts: ZeroDivisionError: 5" in caplog.text
    assert (drafting.breaker.num_failures, drafting.breaker.num_in_a_row) == (1, 1)
    drafting.breaker._until = 0.0
    assert [await tokens_of(number) for number in (4, 5, 6)] == [(), (), ()]
    assert drafting.breaker.num_in_a_row == 2  # what was not asked has not worked
    drafting.breaker._until = 0.0
    assert [await tokens_of(number) for number in (1, 5, 7)] == [(1,), (), (1,)]
    assert drafting.breaker.num_in_a_row == 0
    drafting.close()


def test_a_text_whose_draft_took_too_long_is_drafted_for_no_more() -> None:
    drafter = make_drafter(Fixed([1], [0.9]))
    step(drafter, of_text(1))
    drafter.add(of_text(2))
    assert [each.tokens for each in drafter.give_up()] == [()]
    assert [step(drafter, of_text(number)).tokens for number in (1, 2)] == [(), (1,)]


def test_under_the_ratio_rule_nothing_is_drafted() -> None:
    request = Generation(session_id(1), (5, 6, 7), Sampling(), max_tokens=60, verification="ratio")
    assert drafted(Fixed([1], [0.5]), asked(request=request)).tokens == ()


def test_a_node_drafts_with_it_without_a_model(mine: str) -> None:
    config = DraftConfig(model=f"source:{mine}", tokenizer="tiny-target")
    vocabulary = assembly.load(config)
    assert not isinstance(vocabulary, Checkpoint)
    daemon = assembly.build(config, vocabulary, MemoryNetwork().connect_draft(BOOT), BOOT)
    assert daemon.link.hello.draft_model == "Mine"
    assert isinstance(daemon.drafter, SourceDrafter)


def test_a_source_of_another_package(mine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (info := tmp_path / "my_source-1.0.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-source\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{SOURCES.group}]\nothers = mine:Mine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(SOURCES, "_known", {})
    assert type(create("others")).__name__ == "Mine"
    with pytest.raises(ConfigError, match="no draft source is named 'nobodys'; choose one of: others; or name one"):
        create("nobodys")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("1 / 0", rf"^the draft source {MINE}:Mine: {MINE} cannot be imported: Zero.* \({MINE}, line 1\)$"),
        ("raise SystemExit", rf"mine.py cannot be imported: SystemExit \({MINE}, line 1\)$"),
        ("class Other: pass", "has no class 'Mine'; name the class after the colon"),
        ("class Mine: pass", r"Mine has no method begin\(asked\); see docs/SOURCE.md"),
        ("class Mine:\n    def __init__(self, what): pass", "Mine cannot be created: TypeError: .*'what'$"),
    ],
)
def test_what_cannot_be_a_source_is_refused(code: str, told: str, tmp_path: Path) -> None:
    (file := tmp_path / "mine.py").write_text(code)
    with pytest.raises(ConfigError, match=told):
        create(f"{file}:Mine")
