"""What both nodes do before torch and the model are loaded. Imports what is slow only where it is asked for."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from goodspeed.serving import web
    from goodspeed.serving.reporter import Reporter


def bind_http(http: str | None, api_key: str | None) -> "web.BoundAddress | None":
    """Binds the address of --http, with the keys of the file `api_key`; None without --http."""
    if http is None:
        return None
    from goodspeed.serving import web

    return web.bind_http(http, api_key)


def find_model(name: str, reporter: "Reporter") -> None:
    """Downloads a model of the hub unless it is here; raises a named error where there is none."""
    from goodspeed.engine.folders import find_folder

    find_folder(name, reporter.say)
