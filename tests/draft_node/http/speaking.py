"""A service without nodes that writes what it is told to, token by token, taken apart as the real one does it."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from draft_node.core.actions import Deliver, Finish
from draft_node.core.counts import Statistics
from draft_node.core.generation import Generation
from draft_node.parsing.parser import ONLY_CONTENT, ParserSettings
from draft_node.service.chat_support import ChatSupport
from draft_node.service.output_processor import Begun, Ended, Item, OutputProcessor
from draft_node.service.token_text import TokenTexts
from goodspeed.constraint.compiling import Constraints
from goodspeed.engine.tokenizing.text import NOTHING, Inputs, encode_chat
from goodspeed.wire.messages import Constraint, TokenLogprobs
from tests.chats import QWEN3, ids_of, tokenizer, vocabulary
from tests.draft_node.http.fake import Api, FakeService


class SpeakingService(FakeService):
    """Writes `says`, `num_at_once` tokens in a piece, and then the end of the text."""

    context_len: int = 100_000
    max_chars: int = 1_000_000

    def __init__(self, says: str, template: str = QWEN3, num_at_once: int = 1, **options: Any) -> None:
        super().__init__()
        self.own_tokenizer = tokenizer(template)
        self.chats = ChatSupport.of(self.own_tokenizer, **options)
        self.says = says
        self.num_at_once = num_at_once
        self.constraints = Constraints(vocabulary())

    async def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], user: str, inputs: Inputs = NOTHING
    ) -> tuple[int, ...]:
        ids = encode_chat(self.own_tokenizer, messages, inputs)
        self.prompts.append(self.own_tokenizer.decode(ids))
        return tuple(ids)

    async def check_constraint(self, constraint: Constraint, user: str) -> None:
        self.constraints.get(constraint)

    async def write(self, generation: Generation, parser: ParserSettings = ONLY_CONTENT) -> AsyncGenerator[Item, None]:
        self.generations.append(generation)
        self.parser = parser
        yield Begun("b1")
        answer = OutputProcessor(self.own_tokenizer, TokenTexts(self.own_tokenizer), generation, parser)
        written = ids_of(self.says)
        ids = written[: generation.max_tokens]
        for start in range(0, len(ids), self.num_at_once):
            some = tuple(ids[start : start + self.num_at_once])
            told = () if generation.num_logprobs is None else tuple(TokenLogprobs(-0.5, (), ()) for _ in some)
            yield answer.take(Deliver(some, told))
            if answer.is_complete:
                break
        if not answer.is_complete:
            yield answer.take(Finish("stop" if ids == written else "length"))
        yield Ended(answer.reason, answer.stop, answer.num_tokens, Statistics(), None, answer.num_thinking)


def speaking(says: str = "x", template: str = QWEN3, num_at_once: int = 1, **options: Any) -> Api:
    """An application whose model says this; options: of its `ChatSupport`."""
    return Api(service=SpeakingService(says, template, num_at_once, **options), max_tokens=1000)
