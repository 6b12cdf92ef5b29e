# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A model that is turned into blobs the first time, and found again the next."""
from __future__ import annotations

import hashlib
import json
from pathlib import Path

from intradp_ros.blobs.store import BlobStore
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.systems.language.import_model import import_model
from intradp_ros.systems.language.manifest import DTYPES, Manifest, ManifestError, read_manifest


def imported(source: Path, store: BlobStore, dtype: str = '') -> Manifest:
    """
    Return the manifest of a folder of safetensors or a GGUF file, whose blobs are in a store.

    `dtype` is a name of `DTYPES`, '' for the precision of the weights.  What was turned into
    blobs before, and has not changed since, is not read again.

    Raises
    ------
    ImportModelError, FamilyError, MissingPackageError
        As `import_model` does.

    """
    known = store.folder / f'model-{_fingerprint(source, dtype)}.json'
    try:
        return stored_manifest(store, json.loads(known.read_text())['model'])
    except (OSError, ValueError, KeyError, ManifestError):
        manifest = import_model(source, store.put, DTYPES[dtype] if dtype else None)
    write_atomically(known, json.dumps({'model': manifest.digest, 'of': str(source)}))
    return manifest


def stored_manifest(store: BlobStore, digest: str) -> Manifest:
    """Return a manifest of which all parts are stored; ManifestError if one is not."""
    text = store.load(digest)
    if text is None:
        raise ManifestError('the model is not stored any more')
    manifest = read_manifest(bytes(text.numpy().data).decode(), digest)
    files = (*manifest.blocks, manifest.embedding, manifest.head)
    if any(store.nbytes(file.digest) is None for file in files):
        raise ManifestError('a part of the model is not stored any more')
    return manifest


def _fingerprint(source: Path, dtype: str) -> str:
    """Return a name for what a source holds now: other files, other name."""
    files = sorted(source.glob('*')) if source.is_dir() else [source]
    text = json.dumps([str(source.resolve()), dtype, [
        (path.name, path.stat().st_size, path.stat().st_mtime_ns)
        for path in files if path.exists()]])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
