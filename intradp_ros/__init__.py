# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Share one deep-learning inference between a robot and a server, exactly, over ROS 2."""
from __future__ import annotations

from pkgutil import extend_path
from typing import Any

from intradp_ros.core.version import VERSION as __version__

# Python that is started in a checkout finds this folder first, and only what was installed has
# the messages.
__path__ = extend_path(__path__, __name__)

__all__ = ['IntraDP', '__version__']


def __getattr__(name: str) -> Any:
    """Import the three-line API on first use, so that the core needs no ROS."""
    if name == 'IntraDP':
        from intradp_ros.nodes.sharing.intradp import IntraDP
        return IntraDP
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
