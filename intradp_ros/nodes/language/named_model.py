# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The language model that a parameter names; apart, as devices import no planner."""
from __future__ import annotations

from intradp_ros.blobs.store import BlobStore
from intradp_ros.core.cache_folder import file_error
from intradp_ros.systems.language.families import MissingPackageError
from intradp_ros.systems.language.manifest import Manifest
from intradp_ros.systems.language.opened import imported
from intradp_ros.systems.language.smollm2 import model_place


def opened(path: str, store: BlobStore) -> Manifest:
    """Return a model that a parameter names, its blobs in a store; ValueError if it is none."""
    try:
        return imported(model_place(path), store)
    except OSError as error:
        raise ValueError(str(error) if error.filename is None else file_error(error)) from error
    except (MissingPackageError, ModuleNotFoundError) as error:
        raise ValueError(str(error)) from error
