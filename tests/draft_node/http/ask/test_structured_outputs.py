"""`response_format` and `structured_outputs`: what they become, what is refused and why, and that all else waits."""

import json

import pytest

from goodspeed.wire.generation import Constraint
from tests.draft_node.http.fake import Api

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
TEXT = {"prompt": "hi", "max_tokens": 3}
UNNAMED = {"type": "json_schema", "json_schema": {"schema": {}}}
BY_SCHEMA = Constraint("json_schema", json.dumps(SCHEMA))


def named(**form):
    return {"type": "json_schema", "json_schema": {"name": "x", **form}}


class FormApi(Api):
    """Asks for completions or chats in a form."""

    def ask(self, **form):
        """Returns the status, and what was asked of the nodes or the error."""
        path, body = ("/v1/completions", TEXT) if "structured_outputs" in form else ("/v1/chat/completions", CHAT)
        answer = self.client.post(path, json=body | form)
        is_taken = answer.status_code == 200
        return answer.status_code, self.service.generations[-1].constraint if is_taken else answer.json()["error"]


@pytest.mark.parametrize(
    ("form", "constraint"),
    [
        ({"type": "text"}, None),
        (None, None),
        ({"type": "json_object"}, Constraint("json_object")),
        (named(schema=SCHEMA), BY_SCHEMA),
        (named(schema=SCHEMA, strict=True, description="d"), BY_SCHEMA),
        (named(), Constraint("json_object")),
        ({"type": "json_object", "schema": SCHEMA}, BY_SCHEMA),
    ],
)
def test_response_format(form, constraint):
    assert FormApi().ask(response_format=form) == (200, constraint)


@pytest.mark.parametrize(
    ("form", "constraint"),
    [
        ({"json": SCHEMA}, BY_SCHEMA),
        ({"json": json.dumps(SCHEMA)}, BY_SCHEMA),
        ({"regex": "[ab]+"}, Constraint("regex", "[ab]+")),
        ({"choice": ["yes", "no"]}, Constraint("choice", '["yes", "no"]')),
        ({"grammar": 'start: "a"'}, Constraint("grammar", 'start: "a"')),
        ({"json_object": True}, Constraint("json_object")),
        ({"json_object": True, "regex": None}, Constraint("json_object")),
    ],
)
def test_structured_outputs(form, constraint):
    api = FormApi()
    assert api.ask(structured_outputs=form) == (200, constraint)
    assert api.client.post("/v1/chat/completions", json=CHAT | {"structured_outputs": form}).status_code == 200
    assert api.service.generations[-1].constraint == constraint


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("form", "param", "why"),
    [
        ({"response_format": {"type": "xml"}}, "response_format", "json_object"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "must be given"),
        ({"response_format": named() | {"type": "json_object"}}, "response_format.json_schema", "not a supported"),
        ({"response_format": UNNAMED}, "response_format.json_schema.name", "must be given"),
        ({"response_format": {"type": "text", "more": 1}}, "response_format.more", "not a supported parameter"),
        ({"response_format": named(schema={"not": {}})}, "response_format.json_schema.schema", '"not"'),
        ({"response_format": named(schemas=SCHEMA)}, "response_format.json_schema.schemas", "did you mean schema?"),
        ({"structured_outputs": {}}, "structured_outputs", "exactly one"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs", "exactly one"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs.json_object", "must be true"),
        ({"structured_outputs": {"regex": "a("}}, "structured_outputs.regex", "unclosed group"),
        ({"structured_outputs": {"grammar": "start: x"}}, "structured_outputs.grammar", "unknown name"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "cannot be read as JSON"),
        ({"structured_outputs": {"json": {"enum": ["v" * 70_000]}}}, "structured_outputs.json", "are the most"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "must not be empty"),
        ({"structured_outputs": {"regex": "a"}, "ignore_eos": True}, "ignore_eos", "ends where its form ends"),
        ({"structured_outputs": {"backend": "x", "regex": "a"}}, "structured_outputs.backend", "not a supported"),
        ({"response_format": {"type": "text", "schema": SCHEMA}}, "response_format.schema", "not a supported"),
        ({"guided_choice": ["a"]}, "guided_choice", "send structured_outputs"),
        ({"guided_decoding_backend": "x"}, "guided_decoding_backend", "leave it out"),
    ],
)
def test_what_is_wrong_is_400_and_says_so(form, param, why):
    status, error = FormApi().ask(**form)
    assert (status, error["param"]) == (400, param)
    assert why in error["message"]


def test_two_forms_are_one_too_many():
    api = FormApi()
    body = CHAT | {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}
    answer = api.client.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "structured_outputs")
    assert api.service.generations == []
    assert api.service.num_encoded == 0  # before any other work
