# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A catalogue's models, split along the axes that robots ask for."""
from __future__ import annotations

from collections.abc import Callable, Mapping

from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.requests.worker_thread import Worker
from intradp_ros.split.axes import checked_axis

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

        :raises ValueError: if it cannot be split along this axis.
        """
        key = digest, axis
        if key not in self._found and (model := self._models.get(digest)):
            checked_axis(model.split.captured, axis)
            self._worker.put(key)
        return self._found.get(key)

    def add(self, model: SharedModel) -> None:
        """Take another model of the catalogue, split along the axis that it has."""
        self._models = {**self._models, model.digest: model}
        self._found[model.digest, model.split.axis] = model

    def forget(self, digest: str) -> None:
        """Let go of a model that is in the catalogue no more."""
        self._models = {key: model for key, model in self._models.items() if key != digest}
        for key in [key for key in self._found if key[0] == digest]:
            self._found.pop(key, None)

    def close(self) -> None:
        """Split nothing more."""
        self._worker.stop()

    def _split(self, key: _Key) -> None:
        digest, axis = key
        if key not in self._found and (model := self._models.get(digest)):
            self._found[key] = model.with_axis(axis)
