# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The real rqt finds the plugin and shows it; needs `rqt_gui`, of which there is no wheel."""
from __future__ import annotations

import os
from pathlib import Path
import subprocess
import sys

import pytest

rqt_gui = pytest.importorskip('rqt_gui', reason='rqt comes with ROS, not from PyPI')
pytest.importorskip('qt_gui', reason='qt_gui comes with ROS, not from PyPI')

PACKAGE = 'intradp_ros'
#: Runs rqt with the plugin alone, and reports what its window holds.
SHOWN = """
import sys
from python_qt_binding import QtCore, QtWidgets
from qt_gui.main import Main
import rqt_gui.main

make = Main.create_application

def create(self, argv):
    application = make(self, argv)
    watch = QtCore.QTimer(application)

    def look():
        for window in QtWidgets.QApplication.topLevelWidgets():
            if found := [w for w in window.findChildren(QtWidgets.QWidget)
                         if type(w).__module__.startswith('intradp_ros.rqt')]:
                print('shown', sorted({type(w).__name__ for w in found}), flush=True)
                QtWidgets.QApplication.quit()

    watch.timeout.connect(look)
    watch.start(200)
    QtCore.QTimer.singleShot(120000, QtWidgets.QApplication.quit)
    return application

Main.create_application = create
sys.exit(rqt_gui.main.Main().main([
    'rqt', '--force-discover', '--clear-config', '--standalone',
    'intradp_ros.rqt.sharing_plugin.SharingPlugin']))
"""


def test_rqt_shows_the_plugin(tmp_path: Path) -> None:
    prefixes = [sys.prefix, Path(rqt_gui.__file__).parents[1]]
    shown = subprocess.run(
        [sys.executable, '-c', SHOWN], capture_output=True, text=True, timeout=240, cwd=tmp_path,
        env={**os.environ, 'AMENT_PREFIX_PATH': os.pathsep.join(map(str, prefixes)),
             'QT_QPA_PLATFORM': 'offscreen', 'HOME': str(tmp_path),
             'ROS_LOG_DIR': str(tmp_path), 'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'})
    assert 'shown' in shown.stdout and 'SharingWidget' in shown.stdout, shown.stdout + shown.stderr
