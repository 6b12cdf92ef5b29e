# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Debian's Chromium without a screen, driven by its own protocol: no package is needed for it."""
from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
import itertools
import json
from pathlib import Path
import shutil
import subprocess
import time
from typing import Any
import urllib.request

import pytest
from websockets.sync.client import connect

CHROMIUM = shutil.which('chromium') or shutil.which('chromium-browser') or ''
PATIENCE = 60.0


class Page:
    """A page that is open in a browser."""

    def __init__(self, socket: Any) -> None:
        self._socket, self._numbers = socket, itertools.count(1)
        self.errors: list[str] = []
        self.call('Runtime.enable')
        self.call('Page.enable')
        self.call('Log.enable')

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol, and note the errors that the page has meanwhile."""
        number = next(self._numbers)
        self._socket.send(json.dumps({'id': number, 'method': method, 'params': parameters}))
        while True:
            answer = json.loads(self._socket.recv(PATIENCE))
            if answer.get('method') == 'Runtime.exceptionThrown' or (
                    answer.get('method') == 'Log.entryAdded'
                    and answer['params']['entry']['level'] == 'error'):
                self.errors.append(json.dumps(answer['params'])[:500])
            if answer.get('id') == number:
                assert 'error' not in answer, answer
                return answer['result']

    def open(self, url: str, width: int = 1200, theme: str = 'light') -> None:
        """Open an address in a window of a width, by a theme."""
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=900,
                  deviceScaleFactor=1, mobile=width < 600)
        self.call('Emulation.setEmulatedMedia', features=[
            {'name': 'prefers-color-scheme', 'value': theme}])
        self.call('Page.navigate', url=url)
        self.until(f'document.body && document.readyState !== "loading" '
                   f'&& location.href === new URL({json.dumps(url)}).href')

    def run(self, script: str) -> Any:
        """Return what a script gives, as JSON."""
        found = self.call('Runtime.evaluate', expression=script, returnByValue=True,
                          awaitPromise=True)
        assert 'exceptionDetails' not in found, found['exceptionDetails']
        return found['result'].get('value')

    def text(self) -> str:
        """Return the text of the page, with what charts say of their parts."""
        return str(self.run('document.body.innerText'))

    def until(self, script: str, seconds: float = PATIENCE) -> Any:
        """Return what a script gives as soon as that is true."""
        end = time.monotonic() + seconds
        while not (found := self.run(script)):
            assert time.monotonic() < end, f'{script}: never; {self.errors} ' + str(self.run(
                'document.body && document.body.innerText.slice(0, 2000)'))
            time.sleep(0.05)
        return found

    def picture(self, path: Path) -> None:
        """Write a picture of all of it."""
        shot = self.call('Page.captureScreenshot', captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot['data']))


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Start Chromium with a profile in a folder; skip where there is none."""
    if not CHROMIUM:
        pytest.skip('no Chromium: apt-get install chromium')
    process = subprocess.Popen(
        [CHROMIUM, '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage',
         '--no-first-run', f'--user-data-dir={folder}', '--remote-debugging-port=0',
         'about:blank'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ports, end = folder / 'DevToolsActivePort', time.monotonic() + PATIENCE
        while not (ports.exists() and ports.read_text().strip()):
            assert process.poll() is None and time.monotonic() < end, 'Chromium does not start'
            time.sleep(0.05)
        port = ports.read_text().split()[0]
        with urllib.request.urlopen(f'http://127.0.0.1:{port}/json') as answer:
            [target] = [each for each in json.load(answer) if each['type'] == 'page']
        with connect(target['webSocketDebuggerUrl'], max_size=1 << 28) as socket:
            yield Page(socket)
    finally:
        process.kill()
        process.wait()
