"""`POST /v1/chat/completions` and `/v1/completions`."""

from draft_node.http.answer.chat import ChatShape
from draft_node.http.answer.completions import CompletionShape
from draft_node.http.api.endpoint import Endpoint
from draft_node.http.ask.caller import Caller
from draft_node.http.ask.generation import of_chat, of_completion
from draft_node.http.ask.options import has_switch
from draft_node.http.schema.chat import ChatRequest, CompletionRequest
from draft_node.service.service import Service
from goodspeed.serving.web.bodies import ChatCompletion, Completion


async def _completion(body: CompletionRequest, caller: Caller) -> CompletionShape:
    return CompletionShape(body, await of_completion(body, caller), caller.model_of(body.model))


async def _chat(body: ChatRequest, caller: Caller) -> ChatShape:
    return ChatShape(body, await of_chat(body, caller), caller.model_of(body.model))


def _ignored(body: ChatRequest, service: Service) -> list[str]:
    knows = body.enable_thinking is None or has_switch(service.chats, tools=bool(body.tools))
    return [] if knows else ["enable_thinking"]


COMPLETIONS = Endpoint(
    path="/v1/completions", name="completions", body=CompletionRequest, answer=Completion, shape_of=_completion
)

CHATS = Endpoint(
    path="/v1/chat/completions",
    name="chat",
    body=ChatRequest,
    answer=ChatCompletion,
    shape_of=_chat,
    ignored=_ignored,
)
