"""The routes about the node itself, and who may use which."""

from typing import Any

import pytest

import goodspeed
from draft_node.http.api.generate import routes_of_texts
from draft_node.http.api.node import routes_of_node
from draft_node.http.api.tokenize import routes_of_tokens
from goodspeed.serving.measuring.counts import ResponseCounts
from goodspeed.serving.web.guards import OPEN_PATHS, Counted
from tests.draft_node.http.fake import BODIES, CONTEXT_LEN, KEY, USER, Api, Client, body_of, error_of, keyed

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def routes(api: Api) -> list[tuple[str, str]]:
    """Every path and method."""
    of = api.service, api.config
    found = [*routes_of_texts(*of), *routes_of_tokens(*of), *routes_of_node(*of, lambda: (b"", ""))]
    shown = [(route.path.replace("{name:path}", "goodspeed"), set(route.methods or ()) - {"HEAD"}) for route in found]
    return [(path, method.lower()) for path, methods in shown for method in methods]


def test_the_landing_text_names_every_route(api: Api) -> None:
    answer = api.client.get("/")
    assert answer.headers["content-type"].startswith("text/plain")
    named = {tuple(line.split()[:2]) for line in answer.text.splitlines() if line.startswith(("GET ", "POST "))}
    unnamed = {("GET", "/"), ("GET", "/v1/models/goodspeed")}
    assert named == {(method.upper(), path) for path, method in routes(api)} - unnamed
    assert goodspeed.__version__ in answer.text
    assert "'big-model'" in answer.text


def test_a_browser_gets_a_page_without_a_key_and_everybody_else_the_text() -> None:
    client = keyed().client
    answer = client.get("/", headers=BROWSER)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "goodspeed'" not in answer.text  # nor anything else of this node
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    for tag in ("script", "style"):  # the page's own, and nothing else
        assert policy[f"{tag}-src"].count("'") == 2
        assert policy[f"{tag}-src"].startswith("'sha256-")
    assert client.head("/", headers=BROWSER).status_code == 200
    for method, accept in (("GET", "application/json"), ("GET", "*/*"), ("POST", "text/html")):
        error_of(client.request(method, "/", headers={"Accept": accept}), 401)
    error_of(client.get("/v1/models", headers=BROWSER), 401)
    plain = client.get("/", headers={"Accept": "application/json", "x-api-key": KEY})
    assert plain.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "path", ["embeddings", "images/generations", "audio/speech", "files", "moderations", "threads/1"]
)
def test_what_is_not_served_of_the_api_is_said_with_400(api: Api, path: str, method: str) -> None:
    error = error_of(api.client.request(method, f"/v1/{path}", json={"input": "x"}))
    assert error["code"] == "not_served"
    assert error["message"].startswith(f"/v1/{path} is not served")
    error_of(keyed().client.request(method, f"/v1/{path}"), 401)


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/nothing", "/v1", "/health/", "/v2/x"])
def test_nothing_else_is_there(api: Api, path: str) -> None:
    assert error_of(api.client.get(path, follow_redirects=False), 404)["code"] == "not_found"


@pytest.mark.parametrize("end", ["/", "//"])
def test_a_path_of_the_api_may_end_with_a_slash(end: str) -> None:
    bodies = {path: body_of(path) for path in BODIES} | {"messages/count_tokens": {"messages": [USER]}}
    client, of_keys = Client(Counted(Api().app, answers := ResponseCounts())), keyed().client
    for path, body in bodies.items():
        assert client.post(f"/v1/{path}{end}", json=body, follow_redirects=False).status_code == 200
        assert of_keys.post(f"/v1/{path}{end}", json=body).status_code == 401
    assert answers == {(f"/v1/{path}", 200): 1 for path in bodies}
    assert client.get(f"/v1/models{end}").json()["data"]
    assert client.post(f"/v1/messages{end}", json={}).json()["type"] == "error"
    assert error_of(client.get(f"/v1/files{end}"))["code"] == "not_served"


@pytest.mark.thorough
def test_every_route_but_two_needs_a_key() -> None:
    client = keyed().client
    for path, method in routes(Api()):
        plain = client.request(method, path)
        with_key = client.request(method, path, headers={"Authorization": f"Bearer {KEY}"})
        assert with_key.status_code in (200, 415), path
        if path in OPEN_PATHS:
            assert plain.status_code == 200
        else:
            assert plain.status_code == 401
            assert plain.json()["error"]["message"].startswith("no valid API key")
    error_of(client.get("/nothing"), 401)


def test_head_is_answered_as_get_is(api: Api) -> None:
    client = keyed().client
    paths = [path for path, method in routes(api) if method == "get"]
    assert len(paths) == 7
    for path in paths:
        get, head = api.client.get(path), api.client.head(path)
        assert (head.status_code, head.headers["content-type"]) == (200, get.headers["content-type"])
        assert client.head(path).status_code == (200 if path in OPEN_PATHS else 401)
    api.service.is_ready = False
    assert api.client.head("/ready").status_code == 503
    answer = api.client.get("/v1/completions")
    assert api.client.head("/v1/completions").status_code == answer.status_code == 405
    assert answer.headers["Allow"] == "POST"


def test_ready(api: Api) -> None:
    told = {"status": "ready", "target": "big-model", "target_fingerprint": "b1"}
    assert api.client.get("/ready").json() == told
    api.service.is_ready = False
    answer = api.client.get("/ready")
    assert error_of(answer, 503)["code"] == "verify_away"
    assert answer.headers["Retry-After"]
    api.service.draining = True
    assert error_of(api.client.get("/ready"), 503)["code"] == "draining"
    assert api.client.get("/health").json() == {"status": "ok"}


def test_the_model_has_the_targets_name(api: Api) -> None:
    (model,) = api.client.get("/v1/models").json()["data"]
    assert (model["id"], model["object"], model["max_model_len"]) == ("big-model", "model", CONTEXT_LEN)
    both = {"target": "big-model", "target_fingerprint": "b1", "draft": "small-model", "draft_fingerprint": "d1"}
    assert model["goodspeed"] == both
    assert api.client.get("/v1/models/big-model").json() == model
    assert api.client.get("/v1/models/goodspeed").json() == {**model, "id": "goodspeed"}
    assert error_of(api.client.get("/v1/models/other"), 404)["code"] == "model_not_found"


def test_models_by_several_names() -> None:
    client = Api(served_model_name=("acme/big", "gpt-4o-mini")).client
    first, second = client.get("/v1/models").json()["data"]
    assert (first["id"], second) == ("acme/big", {**first, "id": "gpt-4o-mini"})
    assert client.get("/v1/models/acme/big").json() == first
    for name in ("big-model", "goodspeed"):  # the target's name is not shown
        assert error_of(client.get(f"/v1/models/{name}"), 404)["code"] == "model_not_found"


def test_before_a_target_is_known_its_name_is_not_wrong(api: Api) -> None:
    api.service.target_name = None
    assert [model["id"] for model in api.client.get("/v1/models").json()["data"]] == ["goodspeed"]
    assert error_of(api.client.get("/v1/models/big-model"), 503)["code"] == "verify_away"
    assert api.client.get("/v1/models/goodspeed").status_code == 200
    assert Api(served_model_name=("x",)).client.get("/v1/models/big-model").status_code == 404


@pytest.mark.parametrize("path", BODIES)
def test_an_answer_repeats_the_name_that_was_asked_for(path: str) -> None:
    api = Api(served_model_name=("acme/big", "*"))
    asked: list[dict[str, Any]] = [{}, {"model": "gpt-4o-mini"}, {"model": "acme/big"}]
    assert [api.ask(path, **each).json()["model"] for each in asked] == ["acme/big", "gpt-4o-mini", "acme/big"]
    assert '"model":"gpt-4o-mini"' in api.ask(path, model="gpt-4o-mini", stream=True).text.replace(": ", ":")
    assert api.ask(path, model="x" * 257).status_code == 400
    any_name = Api(served_model_name=("*",)).client
    assert [model["id"] for model in any_name.get("/v1/models").json()["data"]] == ["big-model"]
    assert any_name.get("/v1/models/gpt-4o").status_code == 200


@pytest.mark.parametrize("path", [*(f"/v1/{name}" for name in BODIES), "/v1/messages/count_tokens", "/tokenize"])
def test_a_name_that_is_not_served_is_told_how_to_be(api: Api, path: str) -> None:
    name = path.removeprefix("/v1/")
    body = body_of(name) if name in BODIES else {"messages": [USER]}

    def told(model: str) -> str:
        answer = api.client.post(path, json={**body, "model": model})
        assert answer.status_code == 404
        return str(answer.json()["error"]["message"])

    assert told("gpt-4o-mini") == (
        "the model 'gpt-4o-mini' is not served here; ask for 'big-model', or start this draft node with "
        "--served-model-name gpt-4o-mini, or '*' for any name"
    )
    hostile = told("a'; rm -rf \n\u202e")
    assert "--served-model-name NAME," in hostile
    assert hostile.isascii()
    assert hostile.isprintable()


def test_version_and_metrics(api: Api) -> None:
    assert api.client.get("/version").json() == {"version": goodspeed.__version__}
    answer = api.client.get("/metrics")
    assert (answer.text, answer.headers["content-type"]) == ("metrics 1\n", "text/plain")


def test_text_to_tokens_and_back(api: Api) -> None:
    answer = api.client.post("/tokenize", json={"prompt": "Hi"}).json()
    assert answer == {"tokens": [72, 105], "count": 2, "max_model_len": CONTEXT_LEN, "token_strs": None}
    assert api.client.post("/detokenize", json={"tokens": [72, 105]}).json() == {"prompt": "Hi"}
    chat = api.client.post("/tokenize", json={"messages": [{"role": "user", "content": "Hi"}]}).json()
    assert bytes(chat["tokens"]) == b"user:Hi;"
