"""What the bed says when it cannot go on."""


class BedError(Exception):
    """A step of the bed failed, or a thing that it needs is missing.

    `remedy` tells what to do about it; it is printed on a line of its own.
    """

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n  remedy: {self.remedy}" if self.remedy else self.message
