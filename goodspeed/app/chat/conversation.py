"""A conversation: its turns, and the figures of each answer. Knows nothing about terminals or HTTP."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from goodspeed.app.chat.options import ChatConfig, Message, request
from goodspeed.app.chat.wire import Chunk, Span, Speculation, Usage

INTERRUPTED = "interrupted"
"""Finish reason of an answer that the user stopped; the other reasons are the node's."""

Clock = Callable[[], float]
Show = Callable[[tuple[Span, ...]], None]


class Streams(Protocol):
    """Interface of `Client` that a conversation needs."""

    def stream(self, request: Mapping[str, object]) -> AbstractContextManager[Iterator[Chunk]]: ...


@dataclass(slots=True)
class Answer:
    """One answer with its times and counts."""

    text: str = ""
    reason: str | None = None
    first_s: float | None = None  # until the first text
    elapsed_s: float = 0.0
    usage: Usage | None = None  # told with the last chunk, so not of an answer that was stopped

    @property
    def speculation(self) -> Speculation | None:
        return self.usage.goodspeed if self.usage is not None else None

    @property
    def tokens_per_s(self) -> float | None:
        return self.usage.completion_tokens / self.elapsed_s if self.usage is not None and self.elapsed_s else None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over drafted tokens; None where nothing was drafted."""
        told = self.speculation
        return told.accepted / told.drafted if told is not None and told.drafted else None


@dataclass(slots=True)
class Conversation:
    """The turns so far; every request sends all of them."""

    config: ChatConfig
    model: str
    client: Streams
    clock: Clock = time.perf_counter
    messages: list[Message] = field(init=False)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forgets all turns but the system message."""
        self.messages = [Message("system", self.config.system)] if self.config.system else []

    def ask(self, text: str, show: Show) -> Answer:
        """Returns the answer, and shows it as it arrives. Ctrl-C stops it; its text so far stays in the conversation.

        A turn without any answer is forgotten, so that it can be tried again.
        """
        self.messages.append(Message("user", text))
        answer, started = Answer(), self.clock()
        try:
            with self.client.stream(request(self.config, self.model, self.messages)) as chunks:
                for spans in self._take(answer, chunks):
                    answer.first_s = self.clock() - started if answer.first_s is None else answer.first_s
                    show(spans)
        except KeyboardInterrupt:
            answer.reason = INTERRUPTED
        finally:
            answer.elapsed_s = self.clock() - started
            if answer.text:
                self.messages.append(Message("assistant", answer.text))
            else:
                self.messages.pop()
        return answer

    @staticmethod
    def _take(answer: Answer, chunks: Iterator[Chunk]) -> Generator[tuple[Span, ...], None, None]:
        """Adds the chunks to the answer, and yields the spans to show. What is thought is not sent back."""
        for chunk in chunks:
            answer.usage = chunk.usage or answer.usage
            for choice in chunk.choices[:1]:
                answer.reason = choice.finish_reason or answer.reason
                answer.text += choice.delta.content or ""
                if choice.thoughts:
                    yield choice.thoughts
                if choice.delta.content:
                    yield choice.spans
