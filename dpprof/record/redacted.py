"""Keeps the secrets in a store's address out of files and messages."""

import re

# Up to the last @ before the path: a password may have one that is not escaped.
_USER = re.compile(r"(?<=://)[^\s/'\"]*@")
_SECRET = re.compile(r"(?i)([\w-]*(?:password|passwd|pwd|token|secret)[\w-]*=)[^&\s'\"]+")


def redacted(text: str) -> str:
    """A text without the user and the password of the addresses in it, nor the secrets in their queries."""
    return _SECRET.sub(r"\1***", _USER.sub("", text))
