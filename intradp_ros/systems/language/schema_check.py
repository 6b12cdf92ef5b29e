# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What can be known of a JSON schema before it is compiled: whether some answer can meet it.

Nothing is said of what is not a schema: the library that compiles it says what is wrong.
"""
from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
import json
from typing import Any
from urllib.parse import unquote

#: Below these keys of a schema are values, or schemas that count only where a ``$ref`` names them.
_NOT_FOLLOWED = ('$defs', 'definitions', 'const', 'enum', 'default', 'examples')


def endless_reference(schema: Any) -> str:
    """Return a ``$ref`` that only endless values meet, as it needs itself again; or ''."""
    with suppress(TypeError, AttributeError):
        return next(iter(_Walk(schema, lambda text: True).unmet), '')
    return ''


def unwritable_constant(schema: Any, writes: Callable[[str], bool]) -> str:
    """
    Return a constant or a name, as JSON, that all answers need and no tokens make; or ''.

    `writes` says whether tokens make a text.
    """
    with suppress(TypeError, AttributeError):
        walk = _Walk(schema, writes)
        return '' if walk.is_met(schema) else next(iter(walk.unwritable), '')
    return ''


class _Walk:
    """
    A walk over a schema and all that it refers to, which finds what some finite value meets.

    `writes` says whether values may hold a constant or the name of a property, given as JSON.
    """

    def __init__(self, schema: Any, writes: Callable[[str], bool]) -> None:
        self._schema, self._writes = schema, writes
        #: What no value has been found to meet, by its ``$ref``; texts that may not be held.
        self.unmet: dict[str, Any] = {}
        self.unwritable: dict[str, None] = {}
        self._find(schema)
        count = -1
        while count != (count := len(self.unmet)):
            for name in reversed(list(self.unmet)):  # what is referred to first
                if self.is_met(self.unmet[name]):
                    del self.unmet[name]

    def is_met(self, part: Any) -> bool:
        """Return whether a finite value meets a part of the schema."""
        if not isinstance(part, dict):
            return True
        needed = list(part.get('allOf') or ())
        values = [part['const']] if 'const' in part else part.get('enum')
        if values and not any(map(self._is_writable, values)):
            return False
        if part.get('type') == 'object':
            properties = part.get('properties') or {}
            names = part.get('required') or ()
            if not all(map(self._is_writable, names)):
                return False
            needed += [properties.get(name) for name in names]
        if part.get('type') == 'array':
            first, least = part.get('prefixItems') or [], part.get('minItems') or 0
            needed += [*first, part.get('items')][:least]
        return part.get('$ref') not in self.unmet and all(map(self.is_met, needed)) and all(
            any(map(self.is_met, part[key])) for key in ('anyOf', 'oneOf') if part.get(key))

    def _find(self, part: Any) -> None:
        """Note what a part of the schema refers to."""
        for key, value in part.items() if isinstance(part, dict) else enumerate(
                part if isinstance(part, list) else ()):
            if key == '$ref' and isinstance(value, str):
                if value not in self.unmet:
                    self.unmet[value] = _target(self._schema, value)
                    self._find(self.unmet[value])
            elif key not in _NOT_FOLLOWED:
                self._find(value)

    def _is_writable(self, value: Any) -> bool:
        text = json.dumps(value, ensure_ascii=False)
        if not self._writes(text):
            self.unwritable[text] = None
        return text not in self.unwritable


def _target(schema: Any, reference: str) -> Any:
    """Return what a JSON pointer into a schema leads to; None where that is the library's."""
    if reference != '#' and not reference.startswith('#/'):
        return None
    for word in unquote(reference).split('/')[1:]:
        name = word.replace('~1', '/').replace('~0', '~')
        try:
            schema = schema[int(name) if isinstance(schema, list) else name]
        except (LookupError, TypeError, ValueError):
            return None
    return schema
