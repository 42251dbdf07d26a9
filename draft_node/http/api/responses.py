"""`POST /v1/responses`."""

from functools import partial

from draft_node.http.answer.responses import ResponseShape
from draft_node.http.api.endpoint import Endpoint
from draft_node.http.ask.caller import Caller
from draft_node.http.ask.generation import of_chat
from draft_node.http.ask.responses import chat_of, names_of
from draft_node.http.schema.errors import renamed
from draft_node.http.schema.response_events import ResponseBody
from draft_node.http.schema.responses import ResponsesRequest


async def _shape_of(body: ResponsesRequest, caller: Caller) -> ResponseShape:
    chat = await caller.run(partial(chat_of, body))
    with renamed(names_of(body)):
        batch = await of_chat(chat, caller)
    return await caller.run(partial(ResponseShape, body, batch, caller.model_of(body.model)))


ENDPOINT = Endpoint(
    path="/v1/responses",
    name="responses",
    body=ResponsesRequest,
    answer=ResponseBody,
    shape_of=_shape_of,
    description="Keeps nothing: a conversation goes on when all of it is sent as input.",
)
