"""An OpenAI-compatible HTTP gateway for the Octavo engine.

``protocol`` holds the shapes of requests and answers, ``api`` turns a request into events without knowing any
server, ``server`` carries it over aiohttp.
"""
