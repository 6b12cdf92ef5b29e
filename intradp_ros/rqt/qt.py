# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Qt by rqt's own binding; without rqt by ``qtpy``, which takes PyQt or PySide, as it finds."""
from __future__ import annotations

try:
    from python_qt_binding import QtCore, QtGui, QtWidgets
except ImportError:
    from qtpy import QtCore, QtGui, QtWidgets

__all__ = ['QtCore', 'QtGui', 'QtWidgets']
