# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A model that is turned into blobs the first time, and found again the next."""
from __future__ import annotations

from contextlib import suppress
import errno
import hashlib
import json
import os
from pathlib import Path

import torch

from intradp_ros.blobs.store import BlobStore, StoreFullError
from intradp_ros.core.cache_folder import keep
from intradp_ros.core.json_text import parse_json, read_json
from intradp_ros.systems.language.checkpoint import ImportModelError
from intradp_ros.systems.language.import_model import (
    import_model,
    MAX_NAME,
    model_name,
    NAME_FORMAT,
)
from intradp_ros.systems.language.manifest import DTYPES, Manifest, ManifestError, read_manifest

#: Raised when the same files become other blobs.
_VERSION = 4


def imported(source: Path, store: BlobStore, dtype: str = '') -> Manifest:
    """
    Return the manifest of a folder of safetensors or a GGUF file, whose blobs are in a store.

    `dtype` is a name of `DTYPES`, '' for the precision of the weights.  What was turned into
    blobs before, and has not changed since, is not read again.

    :raises ImportModelError, FamilyError, MissingPackageError: as `import_model` does.
    :raises OSError: if the disk has no room for it, before anything is read.
    """
    known = store.folder / f'model-{_fingerprint(source, dtype)}.json'
    try:
        return stored_manifest(store, read_json(known)['model'], model_name(source))
    except (OSError, ValueError, KeyError, ManifestError):
        manifest = _imported(source, store, DTYPES[dtype] if dtype else None)
    keep(known, json.dumps({'model': manifest.digest, 'of': str(source)}))
    return manifest


def known_name(store: BlobStore, digest: str) -> str:
    """Return what a model was called lately that was turned into blobs of a store; or ''."""
    for found in sorted(store.small(MAX_NAME), key=lambda blob: blob.used, reverse=True):
        data = store.load(found.digest)
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            said = parse_json(bytes(data.numpy().data)) if data is not None else {}
            if said['format'] == NAME_FORMAT and said['model'] == digest:
                return str(said['name'])
    return ''


def _imported(source: Path, store: BlobStore, dtype: torch.dtype | None) -> Manifest:
    """Turn a model into blobs, all or none."""
    def room(nbytes: int) -> None:
        if nbytes + store.kept_bytes > store.limit:
            raise StoreFullError(f'its weights take {nbytes / 1e6:.0f} MB')
        stored = sum(blob.nbytes for blob in store.small(nbytes))  # which may be some of them
        try:
            store.check_room(nbytes - stored)
        except StoreFullError as error:
            raise OSError(errno.ENOSPC, str(error), str(store.folder)) from None
    try:
        with store.all_or_nothing() as put:
            return import_model(source, put, dtype, room=room)
    except StoreFullError as error:
        raise ImportModelError(
            f'{source} does not fit: {error}; {store.folder} may have {store.limit / 1e6:.0f} MB, '
            f'{store.kept_bytes / 1e6:.0f} of them in use: raise store_mb') from None


def stored_manifest(store: BlobStore, digest: str, name: str = '') -> Manifest:
    """Return a manifest of which all parts are stored; ManifestError if one is not."""
    text = store.load(digest)
    if text is None:
        raise ManifestError('the model is not stored any more')
    manifest = read_manifest(bytes(text.numpy().data).decode(), digest, name)
    if any(store.nbytes(digest) is None for digest in manifest.digests):
        raise ManifestError('a part of the model is not stored any more')
    return manifest


def _fingerprint(source: Path, dtype: str) -> str:
    """Return a name for what a source holds now: other files, other name."""
    files = sorted(source.glob('*')) if source.is_dir() else [source]
    text = json.dumps([_VERSION, os.path.realpath(source), dtype, [
        (path.name, path.stat().st_size, path.stat().st_mtime_ns)
        for path in files if path.exists()]])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
