"""What a command needs that draws: matplotlib, from the extra ``octavo[bench]``."""

from __future__ import annotations

from octavo.errors import InvalidArgumentError


def need_matplotlib(flag: str) -> None:
    """Raise ``InvalidArgumentError`` where it cannot be imported, before anything is measured for ``flag``."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise InvalidArgumentError(
            f"{flag} needs the package matplotlib ({error}): pip install matplotlib", param=flag.lstrip("-")
        ) from None
