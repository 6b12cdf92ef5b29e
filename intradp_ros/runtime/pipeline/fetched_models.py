# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Models made of blobs, with the weights of one device's stages alone."""
from __future__ import annotations

from collections import OrderedDict

from intradp_ros.graph.manifest import Manifest, read_manifest
from intradp_ros.runtime.member.role import Blobs, Lacking
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.pipeline.stage_programs import weights_read
from intradp_ros.schedule.stage_plan import StagePlan
from intradp_ros.split.kernel_device import KernelDevice
from intradp_ros.split.on_device import split_for
from intradp_ros.split.split_graph import split_received

_REMEMBERED = 2


class FetchedModels:
    """Finds out what a plan needs here, and makes a model of it; for one thread."""

    def __init__(self, name: str, holdings: Blobs, device: KernelDevice) -> None:
        self._name, self._holdings, self._device = name, holdings, device
        self._known: OrderedDict[str, tuple[Manifest, SharedModel]] = OrderedDict()

    def lacking(self, plan: StagePlan) -> Lacking:
        """
        Return what is to be fetched: the model's manifest first, then the weights.

        :raises GraphFormatError: if the manifest describes no valid graph.
        :raises PlanError: if the plan does not fit it.
        """
        found = self._model(plan.digest)
        if found is None:
            return Lacking({plan.digest: None}, frozenset((plan.digest,)), plan.digest)
        sizes = found[0].sizes(weights_read(found[1], plan, self._name))
        return Lacking({
            sha: nbytes for sha, nbytes in sizes.items() if self._holdings.nbytes(sha) != nbytes},
            frozenset((plan.digest, *sizes)), plan.digest)

    def model(self, plan: StagePlan) -> SharedModel | None:
        """Return the model with the weights that the plan needs here, None if one is lost."""
        found = self._model(plan.digest)
        if found is None:
            return None
        manifest, empty = found
        weights = {sha: self._holdings.find(sha)
                   for sha in manifest.sizes(weights_read(empty, plan, self._name))}
        data = {sha: flat for sha, flat in weights.items() if flat is not None}
        if len(data) < len(weights):
            return None
        return SharedModel(split_for(manifest.filled(data), None, self._device), plan.digest)

    def _model(self, digest: str) -> tuple[Manifest, SharedModel] | None:
        """Return a model without weights, as its manifest describes it."""
        if digest not in self._known:
            text = self._holdings.find(digest)
            if text is None:
                return None
            manifest = read_manifest(text.numpy().tobytes(), digest)
            self._known[digest] = manifest, SharedModel(split_received(manifest.graph), digest)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return self._known[digest]
