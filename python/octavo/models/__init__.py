"""Models: where they come from (hub), the built-in default, and their configuration."""
