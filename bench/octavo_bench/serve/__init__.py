"""``octavo bench serve``: load tests of any OpenAI-compatible server."""
