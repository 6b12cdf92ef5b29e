# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The key that robots, servers and planners share, and what is made of it."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
import hashlib
import hmac
import os
from pathlib import Path
import secrets
from typing import Any

from intradp_ros.core.plain_file import open_to_read
from intradp_ros.core.private_file import check_private

KEY_BYTES, MAC_BYTES = 32, 16


@dataclass(frozen=True)
class SharedKey:
    """
    A secret of 32 bytes.

    Anyone who has it may speak as any robot, server or planner; nobody else can.
    """

    secret: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> SharedKey:
        """Return a new random key."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def load(cls, path: Path) -> SharedKey:
        """
        Read what `save` wrote.

        :raises ValueError: if the file is not a key, or others than its owner may read it.
        :raises OSError: if it cannot be read.
        """
        check_private(path, 'the key file')
        with open_to_read(path) as file:
            text = file.read(4 * KEY_BYTES)
        try:
            secret = bytes.fromhex(text.decode('ascii'))
        except ValueError:
            secret = b''
        if len(secret) != KEY_BYTES:
            raise ValueError(f'{path} is not a key file: make one by `intradp key {path}`')
        return cls(secret)

    def save(self, path: Path) -> None:
        """
        Write the key to a new file that only its owner may read.

        :raises FileExistsError: if there is such a file.
        :raises OSError: if it cannot be written; it names the file, of which nothing is left.
        """
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, 'w') as file:
                file.write(self.secret.hex() + '\n')
        except OSError as error:
            path.unlink()
            raise OSError(error.errno, error.strerror, str(path)) from error

    def derived(self, label: str, *numbers: int) -> bytes:
        """Return the key for one purpose (numbers of 64 bits), which says nothing of others."""
        return _derived(self.secret, label, numbers)


@lru_cache(maxsize=256)
def _derived(secret: bytes, label: str, numbers: tuple[int, ...]) -> bytes:
    text = f'intradp_ros {label} ' + ' '.join(f'{number:016x}' for number in numbers)
    return hashlib.blake2b(text.encode(), key=secret, digest_size=KEY_BYTES).digest()


def mac_of(key: bytes, parts: Iterable[Any]) -> bytes:
    """
    Return the keyed MAC (BLAKE2b, 16 bytes) of some parts that support the buffer protocol.

    Where their lengths may vary, a part before them has to give these.
    """
    content = hashlib.blake2b(key=key, digest_size=MAC_BYTES)
    for part in parts:
        content.update(part)
    return content.digest()


def is_mac(given: Any, wanted: bytes) -> bool:
    """Return whether a MAC that arrived is the right one, in a time that says nothing else."""
    return hmac.compare_digest(bytes(given), wanted)
