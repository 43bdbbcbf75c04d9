"""Names as NATS subjects, and back.

A subject is made of tokens with dots between. Tokens may not be empty, nor hold blanks, and `*`
and `>` are wildcards. A name's own dots stay, so that a prefix of whole tokens is a filter of
NATS; in each token everything but A-Z a-z 0-9 _ - ~ / = @ + is written as %XX, byte by byte,
and an empty token as a lone %:

    jobs.mail.7     jobs.mail.7
    a..b            a.%.b
    .a              %.a
    50 %            50%20%25
    ä*              %C3%A4%2A

No two names share a subject, and none is longer than 3,072 bytes, which a server's default
control line (4,096) has room for. A namespace is a single token, its dots written as %2E;
a long one is the hash of its name instead.

A prefix is asked for by its whole tokens, and what else is below them is left out here: all
names that start with `jobs.mail.7` are among `jobs.mail.>`.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote, unquote

_SAFE = "/=@+"
_EMPTY = "%"
_LONGEST_NAMESPACE = 256
_plain = re.compile(r"[A-Za-z0-9_~/=@+-]+(?:\.[A-Za-z0-9_~/=@+-]+)*").fullmatch


def to_tokens(name: str) -> str:
    """The name as tokens of a subject."""
    if _plain(name):
        return name
    return ".".join(quote(token, safe=_SAFE) or _EMPTY for token in name.split("."))


def from_tokens(tokens: str) -> str:
    """The name whose tokens these are."""
    if "%" not in tokens:
        return tokens
    return ".".join("" if token == _EMPTY else unquote(token) for token in tokens.split("."))


def namespace_token(namespace: str) -> str:
    """The namespace as one token."""
    token = quote(namespace, safe=_SAFE).replace(".", "%2E")
    if len(token) <= _LONGEST_NAMESPACE:
        return token
    return f"%%{hashlib.sha256(namespace.encode()).hexdigest()}"


class Place:
    """The subjects of one kind of thing in one namespace."""

    def __init__(self, root: str, kind: str, namespace: str) -> None:
        self.root = f"{root}.{kind}.{namespace_token(namespace)}."

    def subject(self, name: str) -> str:
        """Where the named thing is."""
        return self.root + to_tokens(name)

    def name(self, subject: str) -> str:
        """What the subject stands for."""
        return from_tokens(subject.removeprefix(self.root))

    def below(self, prefix: str) -> str:
        """A filter that all names with the prefix match, and some others."""
        whole, dot, _ = prefix.rpartition(".")
        return f"{self.root}{to_tokens(whole)}.>" if dot else f"{self.root}>"
