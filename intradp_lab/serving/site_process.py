# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A site as a process of a demo: ``python -m intradp_lab.serving.site_process SETTINGS.json``.

It is what ``intradp serve up`` runs.  Lines of its input are JSON: ``{"policy": NAME}`` chooses
how sites are chosen, ``{"state": ID}`` asks what became of requests.
"""
from __future__ import annotations

from dataclasses import asdict, dataclass
import json
import logging
from pathlib import Path
import sys
import threading
import time
from typing import Any

from intradp_lab.serving.choosers import chooser
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.systems.serving.local_site import LocalSite, SiteSettings
from intradp_ros.systems.serving.service import read_services
from intradp_ros.web.site_server import SiteAccess, SiteServer


@dataclass(frozen=True, slots=True)
class Settings:
    """
    `sites`: addresses (HOST:PORT) of all gateways by site, this one among them.

    `keys`: file of the keys of all sites and robots, `key`: file of this site's; '' for none.
    """

    site: str
    sites: dict[str, str]
    services: str
    logs: str
    threads: int = 1
    keys: str = ''
    key: str = ''

    def written(self, path: Path) -> Path:
        """Write them to a file and return its path."""
        write_atomically(path, json.dumps(asdict(self)))
        return path


def main() -> int:
    """Serve until the input ends."""
    logging.basicConfig(level=logging.INFO, format='%(asctime)s %(levelname)s %(message)s')
    settings = Settings(**json.loads(Path(sys.argv[1]).read_text()))
    out = sys.stdout
    host, _, port = settings.sites[settings.site].rpartition(':')
    Path(settings.logs).mkdir(parents=True, exist_ok=True)
    local = LocalSite(settings.site, read_services(Path(settings.services)),
                      list(settings.sites), SiteSettings(threads=settings.threads,
                                                         logs=Path(settings.logs)))
    server = SiteServer(
        local.gateway, int(port), {site: address for site, address in settings.sites.items()
                                   if site != settings.site},
        SiteAccess.load(host, Path(settings.keys) if settings.keys else None,
                        Path(settings.key) if settings.key else None, rate=1000.0))
    threading.Thread(target=_say_ready, args=(local, out), daemon=True).start()
    for line in sys.stdin:
        asked = json.loads(line)
        if 'policy' in asked:
            local.gateway.neighbours.chooser = chooser(asked['policy'])
            _say(out, policy=asked['policy'])
        else:
            _say(out, state=local.gateway.described())
    server.close()
    local.close()
    return 0


def _say_ready(local: LocalSite, out: Any) -> None:
    services = local.gateway.services
    while not all(local.gateway.specs(service.name) for service in services):
        if problems := local.gateway.described()['problems']:
            _say(out, ready=False, problems=problems)
            return
        time.sleep(0.1)
    _say(out, ready=True)


def _say(out: Any, **what: Any) -> None:
    out.write(json.dumps(what) + '\n')
    out.flush()


if __name__ == '__main__':
    sys.exit(main())
