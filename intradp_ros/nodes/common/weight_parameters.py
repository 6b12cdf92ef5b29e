# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Parameters that say which weights a device fetches from others, and whether it hands out any."""
from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from intradp_ros.blobs.digests import is_digest
from intradp_ros.blobs.store import BlobStore
from intradp_ros.core.cache_folder import cache_folder
from intradp_ros.core.plain_file import check_folder
from intradp_ros.nodes.common.parameters import Parameter
from intradp_ros.runtime.weights.exchange import WeightPolicy

KEYED, ALWAYS, NEVER = 'keyed', 'always', 'never'
FETCH = Parameter(
    'fetch', KEYED, 'Fetch weights that plans need and the catalogue lacks from other devices: '
    'with a key, or of models in fetch_only; from anyone; or nothing.',
    choices=(KEYED, ALWAYS, NEVER))
FETCH_ONLY = Parameter(
    'fetch_only', [''], 'Digests (64 hex digits) of the models that may be fetched; none: any.')
SERVE = Parameter(
    'serve', KEYED, 'Hand out weights to devices that ask for them: to those that have the key; '
    'to anyone; or to nobody.', choices=(KEYED, ALWAYS, NEVER))
STORE = Parameter(
    'store', '', 'Folder for weights that were fetched; by default one in the cache.',
    check=check_folder)
STORE_MB = Parameter(
    'store_mb', 2000.0, 'Bytes that it may have, in 1e6; what was used least lately makes room.',
    0.0, 1e7)
WEIGHT_PARAMETERS: tuple[Parameter, ...] = (FETCH, FETCH_ONLY, SERVE, STORE, STORE_MB)


def weight_policy(given: Mapping[str, Any], keyed: bool) -> WeightPolicy:
    """
    Return what the parameters let a device do.

    :raises ValueError: if `fetch_only` names something else than digests.
    """
    only = frozenset(filter(None, given[FETCH_ONLY.name]))
    for text in only:
        if not is_digest(text):
            raise ValueError(f'parameter fetch_only: {text!r} is not a digest of 64 hex digits, '
                             'as `intradp inspect` prints it')
    fetches = given[FETCH.name] == ALWAYS or given[FETCH.name] == KEYED and (keyed or bool(only))
    store = store_of(given) if fetches else None
    serves = given[SERVE.name] == ALWAYS or given[SERVE.name] == KEYED and keyed
    return WeightPolicy(store, only, serves)


def store_of(given: Mapping[str, Any]) -> BlobStore:
    """Return the store that the parameters name: one for all that use the same in a process."""
    folder = Path(given[STORE.name]) if given[STORE.name] else cache_folder() / 'weights'
    return _store(folder, int(given[STORE_MB.name] * 1e6))


@cache
def _store(folder: Path, limit: int) -> BlobStore:
    return BlobStore(folder, limit)
