"""The HTTP servers of a daemon, by the option that asks for one; two options with one address share a server."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpgt_node.runtime.watching.httpd import HttpServer, Page

log = logging.getLogger(__name__)

OPEN_S = 15.0
"""So long after its start a page can be opened, where somebody is about to: their run may take two seconds."""
HTTP, METRICS, HEALTH = "--http", "--metrics", "--health"


class Sites:
    """``listens``: HOST:PORT by option, None where it is not asked for."""

    def __init__(self, listens: Mapping[str, str | None]) -> None:
        self._listens = {key: listen for key, listen in listens.items() if listen is not None}
        self._servers: dict[str, HttpServer] = {}

    async def open(self) -> None:
        """Listen; pages come later.  ConfigError where an address cannot be had, and nothing listens then."""
        for key, listen in self._listens.items():
            from dpgt_node.runtime.watching.httpd import HttpServer

            twin = next((other for other, address in self._listens.items() if address == listen), key)
            if twin in self._servers:
                self._servers[key] = self._servers[twin]
                continue
            server = HttpServer(listen, key)
            try:
                await server.start()
            except BaseException:
                await self.close()
                raise
            self._servers[key] = server

    def wants(self, key: str) -> bool:
        """Whether that option was given."""
        return key in self._servers

    def add(self, key: str, pages: Mapping[str, Page], first: str) -> None:
        """Serve ``pages`` where option ``key`` says; ``first``: the path that is logged."""
        self._servers[key].pages.update(pages)
        log.info("%s: %s%s", key.removeprefix("--"), self._servers[key].url, first.removeprefix("/"))

    def urls(self) -> dict[str, str]:
        """Where each is, by option without its dashes."""
        return {key.removeprefix("--"): server.url for key, server in self._servers.items()}

    async def close(self) -> None:
        """Answer no more; may be called twice."""
        for server in self._servers.values():
            await server.close()
