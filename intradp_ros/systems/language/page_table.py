# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which pages of keys and values belong to whom: the head alone gives them out."""
from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
import hashlib
import struct

from intradp_ros.systems.language.lanes import PAGE


def page_names(tokens: Sequence[int], known: Sequence[bytes] = ()) -> list[bytes]:
    """
    Return a name for each full page of tokens: a hash of all tokens up to its end.

    `known` are the names of the first pages, if they are known.
    """
    names, name = list(known), known[-1] if known else b''
    for begin in range(len(names) * PAGE, len(tokens) // PAGE * PAGE, PAGE):
        page = struct.pack(f'<{PAGE}I', *tokens[begin:begin + PAGE])
        name = hashlib.sha256(name + page).digest()
        names.append(name)
    return names


class PageTable:
    """
    Pages ``0 .. pages-1``, the same on every device.

    A request gets the pages of some tokens ahead, in one run where there is one: so attention
    reads without copies.
    Pages that begin with the tokens of an earlier request are shared with it; they stay after
    its end until their room is needed.
    """

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self._free = list(range(pages))
        self._users: Counter[int] = Counter()
        self._named: OrderedDict[bytes, int] = OrderedDict()  # the least lately used first
        self._names: dict[int, bytes] = {}

    @property
    def free(self) -> int:
        """Return the number of pages that can be had."""
        return self.pages - len(self._users)

    def take(self, tokens: int, names: Sequence[bytes] = ()) -> tuple[tuple[int, ...], int] | None:
        """
        Return pages for so many tokens, and how many of them are there already; None if too few.

        `names` are those of the first full pages (`page_names`).
        """
        shared: list[int] = []
        for name in names:
            if name not in self._named:
                break
            shared.append(self._named[name])
            self._named.move_to_end(name)
        wanted = -(-tokens // PAGE) - len(shared)
        if wanted > self.free - sum(page not in self._users for page in shared):
            return None
        for name, page in list(self._named.items()):
            if len(self._free) >= wanted:
                break
            if page not in self._users and page not in shared:
                self._forget(name)
        taken = self._run(wanted)
        self._users.update((*shared, *taken))
        return (*shared, *taken), len(shared)

    def name(self, pages: Sequence[int], names: Sequence[bytes]) -> None:
        """Let the first pages of a request, now computed, be found by their names."""
        for page, name in zip(pages, names):
            if name not in self._named and page not in self._names:
                self._named[name], self._names[page] = page, name

    def give_back(self, pages: Sequence[int]) -> None:
        """Let pages be given out again, when nobody else uses them."""
        for page in pages:
            self._users[page] -= 1
            if self._users[page] <= 0:
                del self._users[page]
                if page not in self._names:
                    self._free.append(page)
        self._free.sort()

    def grow(self, pages: int) -> None:
        """Have so many pages, more or fewer; those that are used must be among them."""
        for page, name in list(self._names.items()):
            if page >= pages:
                self._forget(name)
        self._free = [page for page in self._free if page < pages] + list(
            range(self.pages, pages))
        self.pages = pages

    @property
    def used(self) -> int:
        """Return the number of the first page after all that are used."""
        return max(self._users, default=-1) + 1

    def _forget(self, name: bytes) -> None:
        page = self._named.pop(name)
        del self._names[page]
        if page not in self._users:
            self._free.append(page)
            self._free.sort()

    def _run(self, wanted: int) -> list[int]:
        """Take free pages: the smallest run that is large enough, else the largest pieces."""
        runs: list[list[int]] = []
        for page in self._free:
            if runs and page == runs[-1][-1] + 1:
                runs[-1].append(page)
            else:
                runs.append([page])
        enough = [run for run in runs if len(run) >= wanted]
        taken = min(enough, key=len)[:wanted] if enough else [
            page for run in sorted(runs, key=len, reverse=True) for page in run][:wanted]
        gone = set(taken)
        self._free = [page for page in self._free if page not in gone]
        return taken
