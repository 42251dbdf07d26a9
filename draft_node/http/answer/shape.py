"""Generates a request's texts for the shape of its answer, and serializes what is large on another thread."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import ClassVar

from draft_node.core.generation import Generation
from draft_node.http.answer.choices import Choice
from draft_node.http.ask.generation import Batch
from draft_node.http.schema.errors import ApiError
from draft_node.service.output_buffer import OutputBuffer
from draft_node.service.output_processor import Begun, Ended, Item, Piece
from draft_node.service.service import Service
from draft_node.service.token_text import PromptTokens

BYTES = 32
"""Bytes of JSON that an answer repeats from its request and that count as a token."""


class Shape(ABC):
    """One request's answer in its endpoint's format. Its choice takes an item before `events` gets it."""

    between: ClassVar[bytes] = b": waiting\n\n"  # sent in silences of a stream; clients ignore it
    num_repeated: int = 0  # size of what the answer, and a stream's first and last events, repeat from the request

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.choices = [Choice() for _ in batch.texts]

    @abstractmethod
    def whole(self) -> bytes:
        """Returns the answer as JSON after all texts have ended."""

    @abstractmethod
    def events(self, index: int, item: Piece | Ended) -> list[bytes]:
        """Returns the stream events for an item."""

    @abstractmethod
    def last(self) -> list[bytes]:
        """Returns the events that end a stream after all texts."""

    @abstractmethod
    def broken(self, error: ApiError) -> bytes:
        """Returns the bytes that end a failed stream."""


async def items_of(shape: Shape, service: Service) -> AsyncGenerator[tuple[int, Piece | Ended], None]:
    """Passes all texts' items to the shape as they arrive, and yields them with the text's number.

    If one text fails, all end. Leaving the iteration early closes all sessions.
    """
    arrived = OutputBuffer(service.outputs)

    async def run(index: int, generation: Generation) -> None:
        try:
            async with aclosing(service.write(generation, shape.batch.parser)) as items:
                async for item in items:
                    if not arrived.put((index, item)):
                        return  # which closes the session
        except Exception as error:  # raised again below, in the user's task
            arrived.put((index, error))

    tasks = [asyncio.create_task(run(index, one)) for index, one in enumerate(shape.batch.texts)]
    num_left = len(tasks)
    try:
        while num_left:
            index, item = await arrived.get()
            if isinstance(item, Exception):
                raise item
            if shape.batch.is_only_echo:
                item = _without_text(item)
            shape.choices[index].take(item)
            num_left -= isinstance(item, Ended)
            if not isinstance(item, Begun):
                yield index, item
    finally:
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            arrived.end()


def _without_text(item: Item) -> Item:
    """Removes the one mandatory token from an item of a request for the prompt only (`is_only_echo`)."""
    match item:
        case Piece():
            return Piece((), prompt=item.prompt)
        case Ended():
            return replace(item, reason="length", stop=None, num_tokens=0)
    return item


async def collect(shape: Shape, service: Service) -> None:
    """Passes all items to the shape, for a whole answer."""
    async with aclosing(items_of(shape, service)) as items:
        async for _ in items:
            pass


async def events_of(shape: Shape, service: Service, user: str) -> AsyncGenerator[bytes, None]:
    """Yields the events of a stream. Serializes long prompts and requests on the thread for large answers."""
    size_of_first = _size_of_prompts(shape.batch) + shape.num_repeated
    async with aclosing(items_of(shape, service)) as items:
        async for index, item in items:
            shape.choices[index].pieces.clear()  # those of a long stream would take gigabytes; whole answers need them
            work = partial(shape.events, index, item)
            size = size_of_first
            size += _size_of_prompt(shape.batch, item.prompt) if isinstance(item, Piece) else shape.num_repeated
            size_of_first = 0
            for event in await service.answers.run(user, size, work):
                yield event
    for event in shape.last():
        yield event


async def to_json(shape: Shape, service: Service, user: str) -> bytes:
    """Returns the whole answer; serializes a large one in turn, on a thread."""
    return await service.answers.run(user, _size(shape), shape.whole)


def _size(shape: Shape) -> int:
    """Counts an answer's entries: tokens and alternatives, of texts and of what it repeats from the request."""
    told = _size_of_prompts(shape.batch) + sum(_size_of_prompt(shape.batch, choice.prompt) for choice in shape.choices)
    told += shape.num_repeated
    texts = zip(shape.choices, shape.batch.texts, strict=True)
    return told + sum(choice.num_tokens * (1 + (text.num_logprobs or 0)) for choice, text in texts)


def _size_of_prompts(batch: Batch) -> int:
    """Counts the tokens of prompts that an answer shows as text or ids."""
    return (batch.is_echo + batch.returns_token_ids) * sum(len(text.prompt) for text in batch.texts)


def _size_of_prompt(batch: Batch, prompt: PromptTokens | None) -> int:
    num_top = max((text.num_prompt_logprobs or 0 for text in batch.texts), default=0)
    return 0 if prompt is None else len(prompt.ids) * (1 + num_top)


def now() -> int:
    return int(time.time())
