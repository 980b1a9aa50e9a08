"""The memory study: what share of a KV cache holds tokens, and how many sequences run at once, policy by policy."""
