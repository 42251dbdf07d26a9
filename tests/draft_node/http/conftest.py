"""One application for all tests: to make it takes 100 times as long as to ask it."""

import pytest

from tests.draft_node.http.fake import Api, FakeService


@pytest.fixture(scope="session")
def node() -> Api:
    return Api()


@pytest.fixture
def api(node: Api) -> Api:
    """The application with default options and without keys; its service is new."""
    vars(node.service).clear()
    FakeService.__init__(node.service)
    return node
