"""The API over HTTP: aiohttp's low-level server with a dispatcher of our own, so that no route is open by accident."""
