# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Long values in torch's store, in chunks: what the trainer and its workers give each other."""
from __future__ import annotations

from typing import Any

#: Bytes of a value in the store.
CHUNK = 1 << 18


def given_key(tag: int, layer: int) -> str:
    """Return the key of a layer of the trainer's checkpoint."""
    return f'given/{tag}/{layer}'


def put_bytes(store: Any, key: str, body: bytes) -> None:
    """Put bytes into a store; its size, under the key itself, comes last."""
    for begin in range(0, len(body), CHUNK):
        store.set(f'{key}/{begin // CHUNK}', body[begin:begin + CHUNK])
    store.set(key, str(len(body)))


def chunks_there(store: Any, key: str, first: int) -> int:
    """Return the number of the first chunk of a key that is not there, from `first` on."""
    while store.check([f'{key}/{first}']):
        first += 1
    return first


def take_bytes(store: Any, key: str, most: int = 1 << 40, delete: bool = False) -> bytes:
    """
    Return the bytes of a key, and delete them if asked to.

    Raises
    ------
    ValueError
        If they are more than `most`.
    RuntimeError
        If they do not come within the store's time-out.

    """
    size = int(store.get(key))
    if not 0 <= size <= most:
        raise ValueError(f'{key} has {size} bytes, at most {most} are taken')
    parts = []
    for chunk in range(-(-size // CHUNK)):
        parts.append(store.get(f'{key}/{chunk}'))
        if delete:
            store.delete_key(f'{key}/{chunk}')
    if delete:
        store.delete_key(key)
    body = b''.join(parts)
    if len(body) != size:
        raise ValueError(f'{key} has {len(body)} bytes instead of {size}')
    return body
