"""Take secrets out of what is shown to others.

Two nets: what is known to be secret here (the yard's own tokens, values of the environment) goes
wherever it stands; what looks like a secret goes by its form or by the name before it. Rather a
word too many is removed than one too few.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

REMOVED = "[removed]"
#: Shorter known values are words that stand for many things.
SHORTEST_KNOWN = 6

_NAME = (
    r"(?:secret|passw(?:or)?d|passphrase|pwd|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|account[_-]?key|auth[_-]?key|encryption[_-]?key|credential|authorization|cookie|signature"
    # `tokens: 10B` and `tokenizer: bytes` are no secrets
    r"|token(?![a-z]))[\w.-]{0,40}"
)
SECRET_NAME = re.compile(rf"[\w.-]*{_NAME}", re.I)
_QUOTED = r"(?:\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')"
_VENDORS = "hf|ghp|gho|ghs|ghu|github_pat|glpat|npm|pypi|xox[abprs]"

#: What a secret looks like, and what stays of it.
_FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.S), ""),
    # Whoever is named in an address stays, their password does not; it may hold an '@' itself.
    (re.compile(r"(://[^\s:/@\"']*):[^\s\"']*@"), r"\1:{}@"),
    (re.compile(r"\b(Bearer|Basic)\s+[^\s\"',;]+", re.I), r"\1 {}"),
    (re.compile(rf"({_NAME}[\"']?\s*[:=]\s*){_QUOTED}", re.I), r"\1{}"),
    (re.compile(rf"({_NAME}[\"']?\s*[:=]\s*)(?![\"'\[{{])[^\s\"',;&}}\]]+", re.I), r"\1{}"),
    (re.compile(rf"(--[\w.-]{{0,40}}{_NAME}[\s=]+)[^\s\"',;]+", re.I), r"\1{}"),
    (re.compile(r"\byard_[\w-]{16,}"), "{}"),
    (re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{12,}"), "{}"),
    (re.compile(rf"\b(?:{_VENDORS})[_-][\w-]{{10,}}"), "{}"),
    (re.compile(r"\bsk-[\w-]{16,}"), "{}"),
    (re.compile(r"\bAIza[\w-]{20,}"), "{}"),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*"), "{}"),
)


class Redactor:
    """Takes out what looks secret, and what is known to be."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        words = {word for word in known if len(word) >= SHORTEST_KNOWN}
        words |= {quote(word, safe="") for word in words}
        # The longest first: a part of one may be another.
        self._known = sorted(words, key=len, reverse=True)

    def text(self, text: str) -> str:
        """A text without secrets."""
        for word in self._known:
            text = text.replace(word, REMOVED)
        for form, stays in _FORMS:
            text = form.sub(stays.replace("{}", REMOVED) or REMOVED, text)
        return text

    def value(self, value: Any) -> Any:
        """The same for whatever JSON can carry."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(str(name)): REMOVED
                if secret_name(str(name)) and isinstance(inner, (str, int, float))
                else self.value(inner)
                for name, inner in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.value(inner) for inner in value]
        return value


def secret_name(name: str) -> bool:
    """Whether what has this name is nobody's business."""
    return SECRET_NAME.fullmatch(name) is not None


def secrets_of(environment: Mapping[str, str]) -> list[str]:
    """Values of an environment whose names say that they are secret."""
    return [value for name, value in environment.items() if secret_name(name)]
