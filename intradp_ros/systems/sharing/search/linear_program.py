# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Writing down a linear program: variables by number, constraints term by term."""
from __future__ import annotations

from collections.abc import Iterable

from scipy.sparse import csr_array

Term = tuple[float, int]


class Columns:
    """Numbers the variables of the linear program; their range is 0 to `most`."""

    def __init__(self) -> None:
        self.most: list[float] = []
        self.integral: list[bool] = []

    def new(self, most: float = 1.0, integral: bool = False) -> int:
        """Return the number of a new variable."""
        self.most.append(most)
        self.integral.append(integral)
        return len(self.most) - 1

    def several(self, count: int, most: float = 1.0) -> list[int]:
        """Return the numbers of several new variables."""
        return [self.new(most) for _ in range(count)]


class Rows:
    """Collects constraints ``sum of terms <= limit``."""

    def __init__(self) -> None:
        self.row: list[int] = []
        self.column: list[int] = []
        self.factor: list[float] = []
        self.limit: list[float] = []

    def add(self, terms: Iterable[Term], limit: float) -> None:
        """Add a constraint; a column may come several times, its factors add up."""
        for factor, column in terms:
            self.row.append(len(self.limit))
            self.column.append(column)
            self.factor.append(factor)
        self.limit.append(limit)

    def matrix(self, columns: int) -> csr_array:
        """Return the factors."""
        return csr_array((self.factor, (self.row, self.column)), (len(self.limit), columns))
