"""Requests in, events out. Nothing here knows an HTTP server, so that any can carry it."""
