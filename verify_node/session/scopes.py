"""Who shares pages of read text with a session: nobody whom the time could tell anything.

Draft nodes share with none: the key that a client proved and its name are part of every scope. Within a client it is
the draft node's salt that tells its users apart.
"""

from goodspeed.wire.messages import OpenSession
from verify_node.session.client import Peer


def prefix_scope(peer: Peer, opened: OpenSession) -> bytes:
    """The scope in which the session's pages are found. Without a salt it is the session's own, for when it reopens.

    One whose prompt's logprobs are wanted has none: all of the prompt has to be read for them.
    """
    if opened.num_prompt_logprobs is not None:
        return b""
    return _client(peer) + _user(opened)


def _client(peer: Peer) -> bytes:
    """Neither a key nor a name has a zero byte, so that no two of them can make one scope."""
    return f"{peer.principal or ''}\0{peer.client.name}\0".encode()


def _user(opened: OpenSession) -> bytes:
    """Returns the salt's part of a scope; a session without one shares with itself only, for when it reopens."""
    return b"salt\0" + opened.cache_salt if opened.cache_salt else b"session\0" + opened.session_id
