"""Whose cached prefixes a request may find: numbers for the namespaces of the engine's prefix cache."""

from __future__ import annotations

import hashlib
import secrets

from octavo_gateway.protocol.errors import invalid

_SECRET = secrets.token_bytes(32)  # of this process: nobody can look for names that meet


def cache_namespace(tenant: str | None, salt: str | None) -> int:
    """Requests share cached prefixes only within a namespace; a salt makes a tenant's own into smaller ones.

    Nothing is remembered of the names, however many there are. 0 is the namespace of a server without keys.
    """
    if salt is not None and not salt:
        raise invalid("cache_salt", "cache_salt must not be empty.")
    if tenant is None and salt is None:
        return 0
    digest = hashlib.blake2b(digest_size=8, key=_SECRET, person=b"octavo:cache")
    for kind, name in ((b"t", tenant), (b"s", salt)):
        if name is not None:
            raw = name.encode()
            digest.update(kind + len(raw).to_bytes(8, "little") + raw)
    return min(max(int.from_bytes(digest.digest(), "little"), 1), 2**64 - 2)  # the last is the engine's own
