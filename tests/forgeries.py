"""What somebody might write into a certificate."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from dpglm.certificate import Certificate

__all__ = ["both", "double", "everywhere", "forged", "half", "put"]


def forged(certificate: Certificate, *forgeries: Callable[[Any], None]) -> Certificate:
    """Return what is read from the certificate's file once it was changed."""
    document = json.loads(json.dumps(certificate.to_dict()))
    for forge in forgeries:
        forge(document)
    return Certificate.from_dict(document)


def put(path, value):
    """Return a forgery that writes one value into the certificate's JSON."""

    def forge(document):
        *parents, last = path.split(".")
        for part in parents:
            document = document[int(part) if part.isdigit() else part]
        last = int(last) if last.isdigit() else last
        document[last] = value(document[last]) if callable(value) else value

    forge.__name__ = path
    return forge


def both(*forgeries):
    def forge(document):
        for one in forgeries:
            one(document)

    forge.__name__ = "+".join(one.__name__ for one in forgeries)
    return forge


def everywhere(name, value):
    """Return a forgery of every field of that name in the plan, however deep it is."""

    def forged(part):
        if isinstance(part, list):
            return [forged(one) for one in part]
        if not isinstance(part, dict):
            return part
        return {
            key: (value(one) if callable(value) else value) if key == name else forged(one)
            for key, one in part.items()
        }

    def forge(document):
        document["plan"] = forged(document["plan"])

    forge.__name__ = f"every_{name}"
    return forge


def double(value):
    return 2 * value


def half(value):
    return value / 2
