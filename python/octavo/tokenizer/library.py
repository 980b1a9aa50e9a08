"""What the `tokenizers` library raises."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tokenizers

# Its last character is nobody's token: what a tokenizer does with the unknown is not looked at before it meets some.
_PROBE = "a \U0010ffff"


@contextlib.contextmanager
def library_errors(error_of: Callable[[BaseException], Exception]) -> Iterator[None]:
    """Turn whatever the library raises within the block into ``error_of`` it.

    It raises bare ``Exception`` for what it cannot read, and ``PanicException``, which is not even an ``Exception``,
    where its own code ran into what it did not expect.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise error_of(error) from error
        raise


def try_out(backend: tokenizers.Tokenizer, error_of: Callable[[BaseException], Exception]) -> None:
    """Find out now, not at the first request, whether the tokenizer's parts fit together."""
    with library_errors(error_of):
        backend.encode(_PROBE)
