# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Packages that only some parts need, and the command that installs them."""
from __future__ import annotations

from collections.abc import Mapping

#: By the extra of pyproject.toml that names them.
EXTRAS: Mapping[str, tuple[str, ...]] = {
    'language': ('gguf>=0.17', 'llguidance>=1.6', 'transformers>=5.20'),
    'training': ('rosbags>=0.11',),
    'tensorboard': ('tensorboard>=2.20',),
    'serving': ('fastapi>=0.115', 'grpcio>=1.60', 'hpack>=4.2', 'msgpack>=1.0.5',
                'prometheus-client', 'protobuf>=4.25', 'uvicorn>=0.35', 'websockets>=13'),
    'ray': ('ray>=2.60',),
    'rerun': ('rerun-sdk>=0.26',),
    'view': ('uvicorn>=0.35',),
    'web': ('fastapi>=0.115', 'uvicorn>=0.35', 'websockets>=13')}


def pip_install(*extras: str) -> str:
    """Return the command that installs what some extras name."""
    return 'pip install ' + ' '.join(dict.fromkeys(
        f"'{package}'" for extra in extras for package in EXTRAS[extra]))
