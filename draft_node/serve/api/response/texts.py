"""Several texts of one request at once, for as long as their user is there. Knows nothing about shapes of answers."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias, TypeVar

from starlette.types import Receive

from draft_node.config import DraftConfig
from draft_node.serve.api.request.errors import ApiError, ClientGone
from draft_node.serve.service import Begun, Ended, Piece, Service, Wanted
from draft_node.text.tokens import PromptTokens
from goodspeed.errors import Busy

T = TypeVar("T")
Items: TypeAlias = AsyncGenerator[tuple[int, Begun | Piece | Ended], None]


def check_room(service: Service, config: DraftConfig, num_texts: int, n: int) -> None:
    """All of a request's texts are let in, or none. n: the request's choices for each prompt."""
    most = config.max_sessions + config.http_max_waiting
    if num_texts > most:
        what = f"the request asks for {num_texts} texts; this node takes {most} at most; send several requests"
        raise ApiError(400, what, param="n" if n > 1 else "prompt")
    if num_texts > most - service.num_running - service.num_waiting:
        raise Busy("busy", f"{service.num_running} texts are written and {service.num_waiting} wait; ask again later")


async def write(service: Service, texts: Sequence[Wanted]) -> Items:
    """Everybody's pieces as they come, with the text's number. When one fails, all end.

    Leaving the iteration early closes all sessions.
    """
    arrived: asyncio.Queue[tuple[int, Begun | Piece | Ended | Exception]] = asyncio.Queue()

    async def run(index: int, wanted: Wanted) -> None:
        try:
            async with aclosing(service.write(wanted)) as items:
                async for item in items:
                    arrived.put_nowait((index, item))
        except Exception as error:  # raised again below, where the user is
            arrived.put_nowait((index, error))

    tasks = [asyncio.create_task(run(index, wanted)) for index, wanted in enumerate(texts)]
    num_left = len(tasks)
    try:
        while num_left:
            index, item = await arrived.get()
            if isinstance(item, Exception):
                raise item
            yield index, item
            num_left -= isinstance(item, Ended)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def with_prompts(items: Items, num_choices: int) -> Items:
    """The items of choices that are told of their prompt, when it is read for the first of them alone.

    num_choices: of each prompt. The others' pieces wait until the prompt is there, or the first text is over, and begin
    with the prompt as well.
    """
    waiting: dict[int, dict[int, list[Begun | Piece | Ended]]] = {}  # by first choice: the others' items
    prompts: dict[int, PromptTokens | None] = {}  # of first choices; None: its text told nothing
    begun: set[int] = set()  # choices that were told
    async for index, item in items:
        first = index - index % num_choices
        if index == first:
            yield index, item
            if first not in prompts and (isinstance(item, Ended) or (isinstance(item, Piece) and item.prompt)):
                prompts[first] = item.prompt if isinstance(item, Piece) else None
            else:
                continue
        else:
            waiting.setdefault(first, {}).setdefault(index, []).append(item)
        if first in prompts:
            for other, held in waiting.pop(first, {}).items():
                for each in held:
                    if other not in begun and not isinstance(each, Begun):
                        begun.add(other)
                        yield other, Piece("", (), prompt=prompts[first])
                    yield other, each


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What the work comes to; it is cancelled, and ClientGone raised, once the user disconnects."""
    working, leaving = asyncio.create_task(work), asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
