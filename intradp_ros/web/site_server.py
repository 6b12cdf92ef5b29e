# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A site's gateway on the network: its port for robots and sites, and its links to other sites."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from intradp_ros.systems.serving.gateway import Gateway
from intradp_ros.web.access import ApiKeys, check_address, Clients, own_key
from intradp_ros.web.docks import ANY
from intradp_ros.web.serving_app import serve, site_clients
from intradp_ros.web.site_link import SiteLinks

if TYPE_CHECKING:
    from intradp_ros.web.inference_grpc import InferenceGrpc

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class SiteAccess:
    """Where a site listens, who may ask, and by which key other sites know it."""

    address: str = '127.0.0.1'
    keys: ApiKeys | None = None
    key: str = ''
    rate: float = 100.0
    #: Port of the Open Inference Protocol over gRPC, 0 for none.
    grpc: int = 0
    #: Names of clients that may offer executors.
    docks: tuple[str, ...] = ()

    @classmethod
    def load(cls, address: str, keys: Path | None, key: Path | None, rate: float, grpc: int = 0,
             docks: Sequence[str] = ()) -> SiteAccess:
        """
        Read the keys.

        :raises ValueError: if the address needs keys, others may read one, or one that may dock
            has none.
        :raises ModuleNotFoundError: if a package for gRPC is missing; the text says which.
        :raises OSError: if a file cannot be read.
        """
        found = ApiKeys.load(keys) if keys else None
        check_address(address, found)
        if found and (unknown := set(docks) - {ANY, *found.clients.values()}):
            raise ValueError(f'{", ".join(sorted(unknown))} may dock but {keys} has no such key')
        if docks and not found and set(docks) != {ANY}:
            raise ValueError(f'without a file of keys nobody has a name: let "{ANY}" dock, or '
                             'give keys')
        if grpc:
            from intradp_ros.web import inference_grpc  # noqa: F401 - is it there?
        return cls(address, found, own_key(key), rate, grpc, tuple(docks))


class SiteServer:
    """Serves a gateway and links it to others until it is closed; OSError if the port is taken."""

    def __init__(self, gateway: Gateway, port: int, others: Mapping[str, str],
                 access: SiteAccess) -> None:
        clients = site_clients(access.keys, access.rate, others)
        if access.keys and (silent := sorted(set(others) - {*access.keys.clients.values()})):
            _LOG.warning('no key has the name %s: such a site cannot forward requests here',
                         ' or '.join(silent))
        self._server = serve(gateway, access.address, port, clients=clients,
                             docks=access.docks)
        try:
            self._grpc = _grpc(gateway, access, clients)
        except BaseException:
            self._server.close()
            raise
        self._links = SiteLinks(gateway, others, access.key)
        self.url = self._server.url

    @property
    def rejected(self) -> Mapping[str, int]:
        """Return how many connections were refused, displaced or cut, by cause."""
        return self._server.rejected

    def close(self) -> None:
        """End all connections."""
        self._links.close()
        if self._grpc:
            self._grpc.close()
        self._server.close()


def _grpc(gateway: Gateway, access: SiteAccess, clients: Clients) -> InferenceGrpc | None:
    if not access.grpc:
        return None
    from intradp_ros.web.inference_grpc import InferenceGrpc
    return InferenceGrpc(gateway, access.address, access.grpc, clients)
