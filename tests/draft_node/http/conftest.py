"""One application for all tests that need no options of their own."""

import pytest

from tests.draft_node.http.fake import Api, FakeService


@pytest.fixture(scope="session")
def node() -> Api:
    return Api()


@pytest.fixture
def api(node: Api) -> Api:
    """An application with the default options and without keys; its service is new."""
    vars(node.service).clear()
    FakeService.__init__(node.service)
    return node
