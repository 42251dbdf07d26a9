"""`POST /v1/responses`, without state: a translation onto chats."""
