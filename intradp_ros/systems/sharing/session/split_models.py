# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A catalogue's models, split along the axes that robots ask for."""
from __future__ import annotations

from collections.abc import Callable, Mapping

from intradp_ros.runtime.model import SharedModel
from intradp_ros.runtime.worker_thread import Worker
from intradp_ros.split.regions.axes import checked_axis

#: Requests that may wait; robots ask again.
MAX_WAITING = 16

_Key = tuple[str, int]


class SplitModels:
    """
    Models by digest and split axis; there are no more of them than dimensions.

    They are split on a thread of its own, which may take seconds.
    """

    def __init__(self, models: Mapping[str, SharedModel],
                 failed: Callable[[Exception], None]) -> None:
        self._models = models
        self._found = {(digest, model.split.axis): model for digest, model in models.items()}
        self._worker: Worker[_Key] = Worker(self._split, failed, MAX_WAITING, 'splitting')

    def find(self, digest: str, axis: int) -> SharedModel | None:
        """
        Return a model split along an axis; None until it is: ask again.

        Raises
        ------
        ValueError
            If it cannot be split along this axis.

        """
        key = digest, axis
        if key not in self._found:
            checked_axis(self._models[digest].split.captured, axis)
            self._worker.put(key)
        return self._found.get(key)

    def close(self) -> None:
        """Split nothing more."""
        self._worker.stop()

    def _split(self, key: _Key) -> None:
        if key not in self._found:
            digest, axis = key
            self._found[key] = self._models[digest].with_axis(axis)
