"""API keys and the tenants they belong to, kept as digests: from flags, the environment and a file that may change."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import InvalidArgumentError

_log = logging.getLogger("octavo.gateway")

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_VARIABLE = "OCTAVO_API_KEYS"
_DIGEST = "sha256:"  # what stands before the hexadecimal digest of a key that is not written out
_HEX_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_MAX_FILE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Key:
    digest: bytes
    tenant: str


class KeyRing:
    """The keys that are valid now.

    Args:
        keys: keys without a name; each is a tenant of its own.
        named: entries as in a key file.
        file: a key file, read now and again at every `reload`.

    Raises:
        InvalidArgumentError: an entry or the file is wrong, with its place and never with the key.
    """

    def __init__(self, keys: Sequence[str] = (), named: str = "", file: str | None = None) -> None:
        self._file = file
        # "#" is in no name of an entry, so that such a tenant is nobody else.
        self._fixed = [Key(digest_of(key), f"key#{i}") for i, key in enumerate(keys, 1)]
        self._fixed += parse_keys(named, _VARIABLE)
        if named.strip() and len(self._fixed) == len(keys):
            raise _wrong("has no keys", _VARIABLE)
        self._keys = self._fixed + self._read()

    def __bool__(self) -> bool:
        return bool(self._keys)

    def tenant_of(self, key: str) -> str | None:
        """Whose key this is. Each known digest is compared, so that the time says nothing about them."""
        digest, tenant = digest_of(key), None
        for known in self._keys:
            if hmac.compare_digest(known.digest, digest):
                tenant = known.tenant
        return tenant

    @property
    def tenants(self) -> int:
        """How many different ones there are."""
        return len({key.tenant for key in self._keys})

    @property
    def reloadable(self) -> bool:
        return self._file is not None

    def reload(self) -> None:
        """Read the file again. What is wrong with it is logged, and the keys stay as they were."""
        try:
            keys = self._fixed + self._read()
        except InvalidArgumentError as e:
            _log.error("the API keys stay as they were: %s", e)
            return
        self._keys = keys
        _log.info("API keys valid now: %d, of tenants: %d", len(keys), self.tenants)

    def _read(self) -> list[Key]:
        if self._file is None:
            return []
        try:
            with open(self._file, "rb") as f:
                open_to_all = os.fstat(f.fileno()).st_mode & 0o004
                raw = f.read(_MAX_FILE_BYTES + 1)
        except OSError as e:
            raise _wrong(f"cannot be read ({e.strerror or e})", self._file) from None
        if len(raw) > _MAX_FILE_BYTES:
            raise _wrong(f"is larger than {_MAX_FILE_BYTES} bytes", self._file)
        try:
            keys = parse_keys(raw.decode(), Path(self._file).name)
        except UnicodeDecodeError:
            raise _wrong("is not UTF-8", self._file) from None
        if not keys:
            raise _wrong("has no keys", self._file)
        if open_to_all:
            _log.warning("%s can be read by everybody on this machine", self._file)
        return keys


def parse_keys(text: str, source: str) -> list[Key]:
    """`NAME=KEY` or `NAME=sha256:DIGEST`, separated by white space; a line that begins with # is a comment."""
    keys: list[Key] = []
    tenants: dict[bytes, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        for entry in line.split():
            name, _, key = entry.partition("=")
            if not _NAME.fullmatch(name) or not key:
                raise _wrong(
                    f"line {number}: an entry is not NAME=KEY with a name of A-Z a-z 0-9 _ . -", source
                )
            digest = _written_digest(key, number, source)
            if tenants.setdefault(digest, name) != name:
                raise _wrong(f"line {number}: {tenants[digest]} and {name} have the same key", source)
            keys.append(Key(digest, name))
    return keys


def digest_of(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _written_digest(key: str, line: int, source: str) -> bytes:
    if not key.startswith(_DIGEST):
        return digest_of(key)
    digits = key.removeprefix(_DIGEST)
    if not _HEX_DIGEST.fullmatch(digits):
        raise _wrong(f"line {line}: {_DIGEST} needs 64 hexadecimal digits", source)
    return bytes.fromhex(digits)


def _wrong(what: str, source: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"API keys: {source} {what}", param="api_key_file")
