"""What the tests of effects share: a log that callbacks write, and what a call prints."""

import contextlib
import io
from typing import Any


class Log:
    """`log("name")` is a function that writes its name and the numbers of its tensors."""

    def __init__(self) -> None:
        self.entries: list[Any] = []

    def __call__(self, name: str) -> Any:
        return lambda *tensors: self.entries.append((name, *[t.tolist() for t in tensors]))

    def of(self, function: Any, *args: Any) -> list[Any]:
        """What a call writes."""
        self.entries = []
        function(*args)
        return self.entries


def printed(function: Any, *args: Any) -> tuple[str, str]:
    """(what a call prints, its result or the exception that it raises, as text)."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        try:
            result = repr(function(*args))
        except Exception as error:
            result = repr(error)
    return text.getvalue(), result
