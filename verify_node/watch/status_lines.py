"""Status lines about draft nodes that connect, leave, or are refused."""

from goodspeed.serving.events import Sentence
from goodspeed.untrusted import sanitize
from verify_node.core.client_events import ClientEvent

NAMELESS = "(without a name)"


def status_line(event: ClientEvent) -> Sentence:
    """Returns the line that reports an event of a client."""
    name, what = event.client or NAMELESS, sanitize(event.what)
    match event.kind:
        case "joined":
            return Sentence("draft node %s connected (%s)", (name, what))
        case "left":
            return Sentence("draft node %s left", (name,))
        case "lost":
            return Sentence("draft node %s is away", (name,))
        case "barred":
            return Sentence("draft node %s is barred: %s", (name, what))
        case "refused":
            return Sentence("draft node %s is refused (%s): %s", (name, what, sanitize(event.why)))
