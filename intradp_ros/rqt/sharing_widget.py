# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What is seen of a robot, as a Qt widget: rows of text, a history, a timeline, events."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
import os
import time
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from intradp_ros.core.steady import Steady
from intradp_ros.report.timeline_plot import timeline_figure
from intradp_ros.report.view.blocks import Block
from intradp_ros.rqt.history_plot import history_figure
from intradp_ros.rqt.qt import QtCore, QtGui, QtWidgets
from intradp_ros.rqt.robot_watch import RobotWatch
from intradp_ros.runtime.transport.timeline import Event

REFRESH_MS = 500
DRAW_EVERY = 1.0  # seconds between two drawings of a picture, at the least
DRAW_SHARE = 0.1  # of a processor that drawing one picture may take
#: Where `intradp view` listens unless it is given another port.
PAGE = 'http://127.0.0.1:8790'


class Picture(QtWidgets.QLabel):  # type: ignore[misc]
    """
    A figure, drawn by a thread so that the window stays responsive.

    A figure that is dear is drawn more rarely, and one that nobody sees not at all.
    """

    def __init__(self, painter: Executor) -> None:
        super().__init__()
        self.setMinimumSize(320, 120)
        self.setSizePolicy(QtWidgets.QSizePolicy.Policy.Ignored,
                           QtWidgets.QSizePolicy.Policy.Expanding)
        self.setAlignment(QtCore.Qt.AlignmentFlag.AlignCenter)
        self._painter = painter
        self._drawing: Future[Any] | None = None
        self._began, self._rest = float('-inf'), DRAW_EVERY
        self._of: object = None
        self._whole: Any = None

    def draw(self, make: Callable[[], Figure], of: object, now: float) -> None:
        """Draw a figure of something unless it was drawn, or the one before is too young."""
        if self._drawing is None and of != self._of and self.isVisible() and (
                now - self._began >= self._rest):
            self._began, self._of = now, of
            self._drawing = self._painter.submit(_pixels, make)

    def take(self) -> None:
        """Show the figure if it is drawn."""
        if self._drawing is not None and self._drawing.done():
            height, width, pixels, seconds = self._drawing.result()
            self._drawing, self._rest = None, max(DRAW_EVERY, seconds / DRAW_SHARE)
            self._whole = QtGui.QPixmap.fromImage(QtGui.QImage(
                pixels, width, height, 4 * width, QtGui.QImage.Format.Format_RGBA8888))
            self._fit()

    def resizeEvent(self, event: Any) -> None:  # noqa: N802 - Qt's name
        """Fit the figure to the new size."""
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        if self._whole is not None:
            self.setPixmap(self._whole.scaled(
                self.size(), QtCore.Qt.AspectRatioMode.KeepAspectRatio,
                QtCore.Qt.TransformationMode.SmoothTransformation))


class SharingWidget(QtWidgets.QWidget):  # type: ignore[misc]
    """
    Shows one of the robots that `find` returns the names of; `watch` begins to watch one.

    Both are called in Qt's thread, and so is everything of the widget.
    """

    def __init__(self, find: Callable[[], Sequence[str]],
                 watch: Callable[[str], RobotWatch]) -> None:
        super().__init__()
        self.setObjectName('IntraDPSharing')
        self.setWindowTitle('Shared inferences')
        self._find, self._begin = find, watch
        self._watch: RobotWatch | None = None
        self._watched_name = ''
        self._painter = ThreadPoolExecutor(1, 'painter')
        self._values: dict[str, Any] = {}
        self._lay_out()
        self._timer = QtCore.QTimer(self)
        steady = Steady('a picture')
        self._timer.timeout.connect(lambda: steady.do(self.refresh, None))
        self._timer.start(REFRESH_MS)

    @property
    def robot(self) -> str:
        """Return the name of the robot that is shown; empty if there is none."""
        return str(self._choice.currentText())

    @robot.setter
    def robot(self, name: str) -> None:
        if name and self._choice.findText(name) < 0:
            self._choice.addItem(name)
        self._choice.setCurrentText(name)

    @property
    def timelines(self) -> bool:
        """Return whether timelines are asked for and shown."""
        return bool(self._timelines.isChecked())

    @timelines.setter
    def timelines(self, wanted: bool) -> None:
        self._timelines.setChecked(wanted)

    def refresh(self) -> None:
        """Look for robots, and show what is seen of the one that is chosen."""
        for name in self._find():
            if self._choice.findText(name) < 0:
                self._choice.addItem(name)
        watch = self._watched()
        self._nothing.setVisible(watch is None)
        if watch is None:
            return
        watch.timelines = self.timelines
        self._show(*watch.blocks())

    def close_watch(self) -> None:
        """Stop watching and drawing; for good."""
        self._timer.stop()
        if self._watch:
            self._watch.close()
        self._painter.shutdown()

    def _watched(self) -> RobotWatch | None:
        """Return the watch of the robot that is chosen, a new one if the choice has changed."""
        if self.robot and (self._watch is None or self._watched_name != self.robot):
            if self._watch:
                self._watch.close()
            self._watch, self._watched_name = self._begin(self.robot), self.robot
        return self._watch

    def _show(self, rows: Sequence[tuple[str, str]], blocks: Sequence[Block]) -> None:
        found = {block['kind']: block for block in blocks}
        for name, value in [
                *rows, *(('now', b['text']) for b in blocks if b['kind'] == 'headline'),
                *(row for b in blocks if b['kind'] == 'facts' for row in b['rows'])]:
            if name not in self._values:
                self._values[name] = _selectable()
                self._rows.addRow(name, self._values[name])
            self._values[name].setText(value)
        events = [': '.join(row) for row in found.get('table', {}).get('rows', ())]
        if [self._events.item(i).text() for i in range(self._events.count())] != events:
            self._events.clear()
            self._events.addItems(events)
            self._events.scrollToBottom()
        drawn = time.monotonic()
        if frames := found.get('frames'):
            self._history.draw(lambda: history_figure(frames), frames['rows'], drawn)
        self._timeline.setVisible(self.timelines)
        if self.timelines and (timeline := found.get('gantt')):
            self._timeline.draw(lambda: timeline_figure(
                [Event(lane, kind, name, start / 1e3, stop / 1e3)
                 for lane, kind, name, start, stop in timeline['spans']],
                'newest inference, measured on both sides'), timeline['spans'], drawn)
        self._history.take()
        self._timeline.take()

    def _lay_out(self) -> None:
        self._choice = QtWidgets.QComboBox()
        self._timelines = QtWidgets.QCheckBox('timeline')
        self._timelines.setToolTip('robot and server then measure and send it')
        page = QtWidgets.QPushButton('all systems')
        page.setToolTip(f'opens {PAGE}, which the command intradp view serves')
        page.clicked.connect(lambda: QtGui.QDesktopServices.openUrl(QtCore.QUrl(PAGE)))
        top = QtWidgets.QHBoxLayout()
        top.addWidget(self._choice, 1)
        top.addWidget(self._timelines)
        top.addWidget(page)
        self._nothing = _selectable()
        self._nothing.setText(
            'No robot is seen: looked for topics .../stats of intradp_ros/msg/InferenceStats in '
            f'ROS domain {os.environ.get("ROS_DOMAIN_ID", "0")}. Start an inference node in this '
            'environment; intradp status shows what runs, intradp doctor what is wrong. Fleets, '
            'language models and trainings are on the page of intradp view.')
        self._rows = QtWidgets.QFormLayout()
        self._history, self._timeline = Picture(self._painter), Picture(self._painter)
        self._events = QtWidgets.QListWidget()
        self._events.setMaximumHeight(110)
        column = QtWidgets.QVBoxLayout(self)
        column.addLayout(top)
        column.addWidget(self._nothing)
        column.addLayout(self._rows)
        column.addWidget(self._history, 2)
        column.addWidget(self._timeline, 3)
        column.addWidget(QtWidgets.QLabel('what changed'))
        column.addWidget(self._events)


def _selectable() -> Any:
    label = QtWidgets.QLabel()
    label.setTextFormat(QtCore.Qt.TextFormat.PlainText)
    label.setTextInteractionFlags(QtCore.Qt.TextInteractionFlag.TextSelectableByMouse)
    label.setWordWrap(True)
    return label


def _pixels(make: Callable[[], Figure]) -> tuple[int, int, bytes, float]:
    """Return height and width of a figure, its pixels (RGBA, 8 bits each), and what they took."""
    start = time.thread_time()
    canvas: Any = FigureCanvasAgg(make())
    canvas.draw()
    width, height = canvas.get_width_height()
    return height, width, bytes(canvas.buffer_rgba()), time.thread_time() - start
