"""Forgeries of certificates."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from dpglm.certificate import Certificate
from dpglm.certificate.certificate import CertifiedPart

__all__ = ["both", "changed", "double", "everywhere", "forged", "half", "part_of", "put"]

_OF_PARTS = {one.name for one in dataclasses.fields(CertifiedPart)}


def changed(certificate: Certificate, **values: Any) -> Certificate:
    """Return a certificate with other values of its own, or of its only part."""
    own = {name: value for name, value in values.items() if name in _OF_PARTS}
    rest = {name: value for name, value in values.items() if name not in _OF_PARTS}
    return dataclasses.replace(certificate.with_part(**own) if own else certificate, **rest)


def part_of(document: Any) -> Any:
    """Return the only part in the JSON of a certificate."""
    (part,) = document["parts"].values()
    return part


def forged(certificate: Certificate, *forgeries: Callable[[Any], None]) -> Certificate:
    """Return the result of reading the changed certificate file."""
    document = json.loads(json.dumps(certificate.to_dict()))
    for forge in forgeries:
        forge(document)
    return Certificate.from_dict(document)


def put(path, value):
    """Return a forgery that writes one value into the certificate's JSON."""

    def forge(document):
        *parents, last = path.split(".")
        if path.split(".")[0] not in document:
            document = part_of(document)
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
    """Return a forgery of every field of that name in protection and plan, however deep."""

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
        part = part_of(document)
        part["plan"] = forged(part["plan"])
        document["protection"] = forged(document["protection"])

    forge.__name__ = f"every_{name}"
    return forge


def double(value):
    return 2 * value


def half(value):
    return value / 2
