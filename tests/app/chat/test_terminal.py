"""A person at a terminal: commands, answers that are stopped, lines given up; and what stays of a conversation."""

import builtins
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from goodspeed.app.chat import lines
from goodspeed.app.chat.conversation import INTERRUPTED, Conversation
from goodspeed.app.chat.options import ChatConfig
from goodspeed.app.chat.run import HELP, converse
from goodspeed.app.chat.screen import Page
from goodspeed.app.chat.wire import Choice, Chunk, Delta, Usage
from goodspeed.errors import ChatError


@dataclass
class Node:
    """Says "one two"; what `end` does comes after so many words."""

    end: Callable[[], None] | None = None
    after: int = 0
    asked: list[list[str]] = field(default_factory=list)
    is_closed: bool = True

    @contextmanager
    def stream(self, request: Mapping[str, object]) -> Iterator[Iterator[Chunk]]:
        messages = request["messages"]
        assert isinstance(messages, list)
        self.asked.append([message["content"] for message in messages])
        self.is_closed = False
        try:
            yield self._chunks()
        finally:
            self.is_closed = True

    def _chunks(self) -> Iterator[Chunk]:
        for number, word in enumerate(["one ", "two"]):
            if self.end is not None and number == self.after:
                self.end()
            yield Chunk((Choice(Delta(word)),))
        yield Chunk((Choice(Delta(), "stop"),))
        yield Chunk(usage=Usage(2))


def interrupt() -> None:
    raise KeyboardInterrupt


def fail() -> None:
    raise ChatError("the node went")


@pytest.fixture
def talk(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, str]]:
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def talk(node: Node, *typed: str, system: str | None = None) -> tuple[str, str]:
        converse(Conversation(ChatConfig(system=system), "model", node), Page(tint=False), typed)
        captured = capsys.readouterr()
        return captured.out, captured.err

    return talk


def test_commands(talk: Callable[..., tuple[str, str]]) -> None:
    node = Node()
    out, err = talk(node, "a", " ", "/help", "/reset ", "/resat", "b", " /c", "/quit", "d", system="s")
    assert node.asked == [["s", "a"], ["s", "b"]]
    assert out == "one two\none two\n"
    told = err.splitlines()
    assert told[1 : 1 + len(HELP.splitlines())] == HELP.splitlines()
    assert "a new conversation" in told
    assert "/resat is no command; /help tells which there are" in told


def test_an_answer_that_is_stopped_stays_as_far_as_it_came(talk: Callable[..., tuple[str, str]]) -> None:
    node = Node(interrupt, after=1)
    out, err = talk(node, "a", "b")
    assert out == "one \none \n"
    assert node.asked == [["a"], ["a", "one ", "b"]]
    assert err.startswith("[stopped, the first after ")
    assert node.is_closed


@pytest.mark.parametrize("end", [interrupt, fail])
def test_a_turn_without_an_answer_is_forgotten(talk: Callable[..., tuple[str, str]], end: Callable[[], None]) -> None:
    node = Node(end)
    out, err = talk(node, "a", "b")
    assert out == ""
    assert node.asked == [["a"], ["b"]]
    said = {interrupt: "[stopped]\n", fail: "goodspeed: the node went\n"}[end]
    assert err == 2 * said
    assert node.is_closed


def test_times_are_from_the_question_on() -> None:
    ticks = iter([10.0, 12.0, 14.0])
    answer = Conversation(ChatConfig(), "model", Node(), lambda: next(ticks)).ask("a", lambda spans: None)
    assert (answer.first_s, answer.elapsed_s, answer.tokens_per_s) == (2.0, 4.0, 0.5)
    assert (answer.reason, answer.acceptance_rate) == ("stop", None)
    assert answer.reason != INTERRUPTED


def test_a_typed_line_can_be_given_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    happenings: Iterator[str | type[BaseException]] = iter(["a", KeyboardInterrupt, "b", EOFError])

    def typed(prompt: str) -> str:
        happening = next(happenings)
        if isinstance(happening, str):
            return happening
        raise happening

    monkeypatch.setattr(builtins, "input", typed)
    assert list(lines.typed()) == ["a", "b"]
    assert capsys.readouterr().out == "\n\n"
