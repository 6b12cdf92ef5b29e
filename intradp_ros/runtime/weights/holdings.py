# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The blobs that a device has: weights and manifests of its catalogue, and those in its store."""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
import hashlib
import threading
from typing import TYPE_CHECKING

import torch

from intradp_ros.blobs.digests import flat_bytes
from intradp_ros.blobs.store import BlobStore
from intradp_ros.runtime.weights.frames import StateFound
from intradp_ros.runtime.weights.state import State

if TYPE_CHECKING:
    from intradp_ros.runtime.models.model import SharedModel

#: Blobs that stay at hand once they were read and compared with their digest.
AT_HAND = 32


class WeightHoldings:
    """
    Finds a blob by its digest; safe to call from several threads.

    The weights of the catalogue are hashed when a blob is first looked for: seconds for a
    large model.
    """

    def __init__(self, models: Mapping[str, SharedModel], store: BlobStore | None) -> None:
        self.models, self.store = models, store
        self._own: dict[str, torch.Tensor] = {}
        self._indexed: set[str] = set()
        self._offered: dict[str, torch.Tensor] = {}
        #: State of the roles here, by the format of their plans; it is handed out, too.
        self.states: Mapping[str, State] = {}
        self._at_hand: OrderedDict[str, torch.Tensor] = OrderedDict()
        self._lock = threading.Lock()

    def offer(self, data: torch.Tensor) -> str:
        """Hold a tensor's bytes in memory until `withdraw`; return their digest."""
        flat = flat_bytes(data)
        digest = hashlib.sha256(flat.cpu().numpy().data).hexdigest()
        with self._lock:
            self._offered[digest] = flat
        return digest

    def withdraw(self, digest: str) -> None:
        """Hold what was offered no more."""
        with self._lock:
            self._offered.pop(digest, None)
            self._at_hand.pop(digest, None)

    def nbytes(self, digest: str) -> int | None:
        """Return the bytes of a blob, None where it is not held."""
        with self._lock:
            own = self._of_state(digest)
            own = self._own_blob(digest) if own is None else own
        if own is not None:
            return own.nbytes
        return self.store.nbytes(digest) if self.store else None

    def find(self, digest: str) -> torch.Tensor | None:
        """Return the bytes of a blob, None where it is not held, or not right any more."""
        if (state := self._of_state(digest)) is not None:
            return flat_bytes(state)
        with self._lock:
            own = self._own_blob(digest)
            found = self._at_hand.get(digest)
            if found is None:
                found = flat_bytes(own) if own is not None else \
                    self.store.load(digest) if self.store else None
            if found is not None:
                self._at_hand[digest] = found
                self._at_hand.move_to_end(digest)
            if len(self._at_hand) > AT_HAND:
                self._at_hand.popitem(last=False)
            return found

    def state(self, format_: str, name: str, tag: int) -> StateFound | None:
        """Return the digest of a tensor of a role's state; takes as long as hashing it."""
        state = self.states.get(format_)
        found = state.digest(name, tag) if state else None
        return StateFound(found[0], found[1].dtype, tuple(found[1].shape)) if found else None

    def _of_state(self, digest: str) -> torch.Tensor | None:
        """Return the tensor of a role's state whose digest was asked for."""
        found = (state.by_digest(digest) for state in self.states.values())
        return next((tensor for tensor in found if tensor is not None), None)

    def _own_blob(self, digest: str) -> torch.Tensor | None:
        offered = self._offered.get(digest)
        return self._index().get(digest) if offered is None else offered

    def _index(self) -> dict[str, torch.Tensor]:
        """Return the blobs of the catalogue."""
        for digest, model in self.models.items():
            if digest not in self._indexed:
                self._indexed.add(digest)
                self._own |= _blobs(digest, model)
        return self._own


def _blobs(digest: str, model: SharedModel) -> dict[str, torch.Tensor]:
    """Return the blobs of a model; none of one that cannot be written down."""
    # Here: a device without a catalogue needs nothing of graphs.
    from intradp_ros.graph.graph_errors import GraphFormatError
    from intradp_ros.graph.manifest import read_manifest
    from intradp_ros.graph.serialise import manifest_text
    graph = model.split.captured
    try:
        text = manifest_text(graph).encode()
        manifest = read_manifest(text, digest)
    except GraphFormatError:
        return {}
    found = {sha: graph.parameters[name] for name, sha in manifest.weights.items()}
    return {**found, hashlib.sha256(text).hexdigest(): torch.frombuffer(
        bytearray(text), dtype=torch.uint8)}
