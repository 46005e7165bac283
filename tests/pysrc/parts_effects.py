"""What the functions of the corpus use: prints, exceptions and texts."""

PAIRS = ((2.0,), (-3.0,), (0.5,))


class MyError(Exception):
    """An exception with more than a message."""

    def __init__(self, text, code):
        super().__init__(text)
        self.code = code


def check_positive(x):
    if x < 0:
        raise ValueError("negative")
    return x
