# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Whether devices can reach each other: each listens, and after a failure each tries all others.

What a wait says of whom it waited for may be wrong: that one may have waited for another.  A
connection that is not made says which link is cut; a process that is stopped still gets one.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
import contextlib
import socket
import threading
from typing import Any

from intradp_ros.systems.training.run.round_groups import GroupError

#: Seconds that a connection may take.
PATIENCE = 1.0


class Reachability:
    """
    A socket at which connections are taken and closed; its place is in the store.

    Raises
    ------
    GroupError
        If the address is none of this device.

    """

    def __init__(self, name: str, address: str, store: Any) -> None:
        try:
            self._name, self._socket = name, socket.create_server((address, 0), backlog=64)
        except OSError as error:
            raise GroupError(f'{name} cannot listen at {address} ({error}): name an address of '
                             'its own that the others can reach') from None
        store.set(_key(name), f'{address} {self._socket.getsockname()[1]}')
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        while True:
            try:
                self._socket.accept()[0].close()
            except OSError:
                return  # closed

    def places(self, store: Any, names: Sequence[str]) -> dict[str, list[str]]:
        """
        Return where others listen; to be asked while the store can be reached.

        Raises
        ------
        GroupError
            If the store does not answer in time.

        """
        try:
            return {name: store.get(_key(name)).decode().split()[:2] for name in names
                    if name != self._name}
        except (RuntimeError, ValueError) as error:
            raise GroupError(f'the store does not say where the others are: '
                             f'{str(error).splitlines()[0]:.200}') from None

    def unreached(self, places: Mapping[str, Sequence[str]]) -> list[str]:
        """Return those to whom no connection can be made now."""
        if not places:
            return []
        with ThreadPoolExecutor(len(places)) as pool:
            found = list(pool.map(_reaches, places.values()))
        return [name for name, reached in zip(places, found) if not reached]

    def close(self) -> None:
        """Listen no more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._socket.close()


def _key(name: str) -> str:
    return f'reachability/{name}'


def _reaches(place: Sequence[str]) -> bool:
    try:
        with socket.create_connection((place[0], int(place[1])), PATIENCE):
            return True
    except ConnectionRefusedError:
        return True  # the machine is there: whether the process is, the trainer knows
    except (OSError, ValueError, IndexError):
        return False
