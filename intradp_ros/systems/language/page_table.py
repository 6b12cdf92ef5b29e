# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which pages of keys and values belong to whom: the head alone gives them out."""
from __future__ import annotations

from intradp_ros.systems.language.lanes import PAGE


class PageTable:
    """
    Pages ``0 .. pages-1``, the same on every device.

    A request gets all that it may need at once, in one run where there is one: so it
    never waits for memory in the middle of an answer, and attention reads without copies.
    """

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self._free = list(range(pages))

    @property
    def free(self) -> int:
        """Return the number of free pages."""
        return len(self._free)

    def take(self, tokens: int) -> tuple[int, ...] | None:
        """Return pages for so many tokens, the smallest run that is large enough; or None."""
        wanted = -(-tokens // PAGE)
        if wanted > len(self._free):
            return None
        runs: list[list[int]] = []
        for page in self._free:
            if runs and page == runs[-1][-1] + 1:
                runs[-1].append(page)
            else:
                runs.append([page])
        enough = [run for run in runs if len(run) >= wanted]
        if enough:
            taken = min(enough, key=len)[:wanted]
        else:  # the largest runs first: few pieces
            taken = [page for run in sorted(runs, key=len, reverse=True) for page in run][:wanted]
        gone = set(taken)
        self._free = [page for page in self._free if page not in gone]
        return tuple(taken)

    def give_back(self, pages: tuple[int, ...]) -> None:
        """Let pages be given out again."""
        self._free = sorted({*self._free, *pages})

    def grow(self, pages: int) -> None:
        """Have so many pages, more or fewer; those that are taken must be among them."""
        self._free = [page for page in self._free if page < pages] + list(
            range(self.pages, pages))
        self.pages = pages

    @property
    def used(self) -> int:
        """Return the number of the first page after all that are taken."""
        free = set(self._free)
        return next((page + 1 for page in reversed(range(self.pages)) if page not in free), 0)
