"""`POST /tokenize`, `/detokenize` and `/v1/messages/count_tokens`: texts and conversations as token ids, and back."""

from collections.abc import Sequence
from functools import partial

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from draft_node.config import DraftConfig
from draft_node.http.answer.streams import unless_gone
from draft_node.http.ask.body import ignored_of, read
from draft_node.http.ask.caller import Caller, served_name
from draft_node.http.ask.chat_options import options_of
from draft_node.http.ask.prompts import check_ids, encode_chat, encoded
from draft_node.http.schema.chat import ChatRequest, DetokenizeRequest, TokenizeRequest
from draft_node.http.schema.errors import renamed
from draft_node.http.schema.messages import CountRequest
from draft_node.service.service import Service
from goodspeed.serving.web.errors import MESSAGES
from goodspeed.serving.web.guards import user_of


def routes_of_tokens(service: Service, config: DraftConfig) -> list[Route]:
    async def tokenize(request: Request) -> Response:
        """Encodes `prompt`, or `messages` by the chat template; `max_model_len` is 0 while the verify node is away."""
        body = await read(request, TokenizeRequest, service.bodies)
        caller = Caller.of(request, service, config)
        caller.model_of(body.model)
        if body.messages is not None:
            chat = ChatRequest.model_construct(**{name: value for name, value in body if name != "prompt"})
            ignored_of(request.scope).update(chat.ignored(service.chats))
            encoding = encode_chat(chat.messages, caller, options_of(chat, service.chats).inputs)
        else:
            encoding = encoded(body.prompt or "", caller)
        ids = await unless_gone(request.receive, encoding)
        content = await service.answers.run(caller.user, len(ids), lambda: _tokenized(ids, service.context_len))
        return Response(content, media_type="application/json")

    async def detokenize(request: Request) -> Response:
        body = await read(request, DetokenizeRequest, service.bodies)
        served_name(body.model, service, config)
        check_ids(body.tokens, "tokens", service.vocab_size)
        decoding = service.tokenizer.decode(body.tokens, user_of(request.scope))
        return JSONResponse({"prompt": await unless_gone(request.receive, decoding)})

    async def count_tokens(request: Request) -> Response:
        """Counts the tokens of the prompt that a request with these parameters has."""
        body = await read(request, CountRequest, service.bodies)
        caller = Caller.of(request, service, config)
        chat = await caller.run(partial(body.chat, service.chats))
        ignored_of(request.scope).update(body.ignored(service.chats))
        with renamed(body.names):
            caller.model_of(chat.model)
            encoding = encode_chat(chat.messages, caller, options_of(chat, service.chats).inputs)
            return JSONResponse({"input_tokens": len(await unless_gone(request.receive, encoding))})

    handlers = {"/tokenize": tokenize, "/detokenize": detokenize, f"{MESSAGES}/count_tokens": count_tokens}
    return [Route(path, handler, methods=["POST"]) for path, handler in handlers.items()]


def _tokenized(ids: Sequence[int], max_model_len: int) -> bytes:
    """Serializes the answer id by id: between them other threads get the GIL."""
    shown = (token for token in ids)
    return to_json({"tokens": shown, "count": len(ids), "max_model_len": max_model_len, "token_strs": None})
