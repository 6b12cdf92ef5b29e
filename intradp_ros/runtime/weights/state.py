# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Tensors of a role that outlive its plans, each by name and tag; copies move between devices."""
from __future__ import annotations

from collections.abc import Mapping
import hashlib
import threading

import torch

from intradp_ros.blobs.digests import flat_bytes


class State:
    """
    Tensors by name and tag; safe to call from several threads.

    A tag counts what the tensor came of (frames, tokens, rounds), so that the same name and tag
    mean the same bytes on every device.  A tensor that was put must not be changed any more:
    put a copy where the original is worked on.
    """

    def __init__(self) -> None:
        self._tensors: dict[str, dict[int, torch.Tensor]] = {}
        self._digests: dict[str, tuple[str, int]] = {}
        self._lock = threading.Lock()

    def put(self, name: str, tag: int, tensor: torch.Tensor) -> None:
        """Keep a tensor; one of the same name and tag is replaced."""
        with self._lock:
            self._tensors.setdefault(name, {})[tag] = tensor.detach()
            self._digests = {digest: at for digest, at in self._digests.items()
                             if at != (name, tag)}

    def get(self, name: str, tag: int) -> torch.Tensor | None:
        """Return a tensor, None where it is not here."""
        with self._lock:
            return self._tensors.get(name, {}).get(tag)

    def tags(self) -> Mapping[str, tuple[int, ...]]:
        """Return the tags of all names, ascending."""
        with self._lock:
            return {name: tuple(sorted(tags)) for name, tags in self._tensors.items() if tags}

    def drop(self, name: str) -> None:
        """Forget the tensors of a name."""
        with self._lock:
            self._tensors.pop(name, None)
            self._digests = {digest: at for digest, at in self._digests.items()
                             if at[0] != name}

    def digest(self, name: str, tag: int) -> tuple[str, torch.Tensor] | None:
        """Return the SHA-256 of a tensor's bytes, and the tensor; takes as long as hashing it."""
        tensor = self.get(name, tag)
        if tensor is None:
            return None
        digest = hashlib.sha256(flat_bytes(tensor).cpu().numpy().data).hexdigest()
        with self._lock:
            self._digests[digest] = name, tag
        return digest, tensor

    def by_digest(self, digest: str) -> torch.Tensor | None:
        """Return the tensor whose digest was asked for, if it is here still and the same."""
        at = self._digests.get(digest)
        return self.get(*at) if at else None
