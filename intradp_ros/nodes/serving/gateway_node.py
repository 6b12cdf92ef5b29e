# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The node of a site: serves models to robots, by the service ``infer`` and over HTTP."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TYPE_CHECKING

from intradp_ros.core.plain_file import check_file
from intradp_ros.nodes.common.device_parameter import DEFAULT_MODEL, DEVICE
from intradp_ros.nodes.common.diagnostics import SaidOnce, Status
from intradp_ros.nodes.common.key_parameter import KEY_FILE, key_of
from intradp_ros.nodes.common.lifecycle import ManagedNode, run_node
from intradp_ros.nodes.common.parameters import Parameter
from intradp_ros.nodes.common.prometheus import Figure, Total
from intradp_ros.nodes.serving.infer_server import InferServer
from intradp_ros.runtime.requests.infer_requests import InferFate, MAX_PRIORITY
from intradp_ros.systems.serving.local_site import LocalSite, SiteSettings
from intradp_ros.systems.serving.service import parse_services, read_services, Service
from intradp_ros.systems.serving.site_files import planned_site, PlannedSite

if TYPE_CHECKING:
    from intradp_ros.web.site_server import SiteServer

#: What is served where no file says so.
DEFAULT = f'services: {{edges: {{model: "{DEFAULT_MODEL}", deadline: 500 ms, keep: newest}}}}'


class GatewayNode(ManagedNode):
    """
    Runs one site, as ``intradp serve up`` does: its gateway and its executors.

    While it is active it serves `~/infer`, and with a fleet file the gateway's port, which also
    joins it to the other sites.  Publishes `diagnostics`.
    """

    PARAMETERS = (
        Parameter('services_file', '', 'services.yaml: what is served; empty: the edge detector '
                  'of this package, as "edges".', check=check_file),
        Parameter('fleet_file', '', 'fleet.yaml, whose devices with a gateway are the sites; '
                  'empty: this site is alone, and without HTTP.', check=check_file),
        Parameter('device_name', '', 'The device of the fleet, or its site, that this machine is; '
                  'empty: the one of its host name. Without a fleet the name of the site.'),
        Parameter('plan_file', '', 'A placement that "intradp serve plan -o" wrote: what each '
                  'executor runs, also when the file changes; empty: each runs all services.',
                  check=check_file),
        Parameter('executors', 1, 'Processes that compute, without a plan.', 1, 64),
        Parameter('threads', 1, 'CPU threads of each.', 1, 256),
        DEVICE,
        KEY_FILE,
        Parameter('highest_priority', 0, 'The highest priority that a request to ~/infer may '
                  'have.', -MAX_PRIORITY, MAX_PRIORITY),
        Parameter('http_address', '127.0.0.1', 'Address of the port that the fleet file names; '
                  'one that other machines reach needs api_keys.'),
        Parameter('api_keys', '', 'File of API keys: a name, a blank and a key on each line; '
                  'that of another site has its name.',
                  check=check_file),
        Parameter('site_key', '', 'File of the key by which other sites know this one.',
                  check=check_file),
        Parameter('docks', '', 'Names in api_keys, with commas, of robots that may compute for '
                  'this site on their docks ("intradp serve dock"); any: all that may ask.'),
        Parameter('http_rate', 100.0, 'Connections, and requests over HTTP, a second that a '
                  'client may begin in the mean.', 0.01, 1e6),
        Parameter('grpc_port', 0, 'TCP port of the Open Inference Protocol over gRPC; 0 for none.',
                  0, 65535),
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('gateway_node', **kwargs)
        self._problems = SaidOnce(self.warn)
        self._local: LocalSite | None = None
        self._infer: InferServer | None = None
        self._server: SiteServer | None = None

    def setup(self, parameters: dict[str, Any]) -> None:
        """Start the gateway and its executors, which load the models."""
        self._settings = given = parameters
        self._key = key_of(given, self.warn)
        site = self._site(read_services(Path(given['services_file'])) if given['services_file']
                          else parse_services(DEFAULT))
        self._planned = site
        if site.gateways:  # what only a port needs is an extra
            from intradp_ros.web.site_server import SiteAccess
            keys, own = (Path(given[name]) if given[name] else None
                         for name in ('api_keys', 'site_key'))
            self._access = SiteAccess.load(given['http_address'], keys, own,
                                           given['http_rate'], given['grpc_port'],
                                           [name.strip() for name in given['docks'].split(',')
                                            if name.strip()])
        self._local = site.start(SiteSettings(
            given['executors'], given['threads'], given[DEVICE.name]))
        self.until_cleanup.callback(self._end_site, self._local)
        self.diagnose(self._status)

    def _site(self, services: tuple[Service, ...]) -> PlannedSite:
        given = self._settings
        if given['fleet_file']:
            return planned_site(Path(given['fleet_file']), services, given['device_name'],
                                Path(given['plan_file']) if given['plan_file'] else None)
        if given['plan_file'] or given['grpc_port']:
            raise ValueError('plan_file and grpc_port are of sites: name their fleet_file, too')
        return PlannedSite(given['device_name'] or 'site', services, {})

    def start(self) -> None:
        """Take requests."""
        assert self._local is not None
        site, gateway = self._planned, self._local.gateway
        self._infer = InferServer(self, gateway, self._key, self._settings['highest_priority'],
                                  self.warn)
        self.until_deactivated.callback(self._stop, self._infer)
        where = self.resolve_service_name('~/infer')
        if site.gateways:
            from intradp_ros.web.site_server import SiteServer
            try:
                self._server = SiteServer(gateway, site.port, site.others, self._access)
            except OSError as error:
                raise ValueError(f'{self._settings["http_address"]}, ports {site.port} and '
                                 f'{self._access.grpc}: {error}') from error
            self.until_deactivated.callback(self._server.close)
            where += f' and {self._server.url}'
        self.info(f'site {site.name} at {where}; services: '
                  f'{", ".join(service.name for service in site.services)}')

    def _stop(self, infer: InferServer) -> None:
        self._infer = None
        infer.close()

    def _end_site(self, local: LocalSite) -> None:
        self._local = None
        local.close()

    def _status(self) -> Status | None:
        """Return what diagnostics say."""
        if self._local is None:
            return None
        state = self._local.gateway.described()
        ready = [service.name for service in self._planned.services
                 if self._local.gateway.specs(service.name)]
        loading = [name for name in state['services'] if name not in ready]
        problems = [f'{what}: {why}' for what, why in state['problems'].items()]
        if (plan := state['plan'])['why']:
            problems.append(f'the new plan is not used: {plan["why"]}')
        if self._local.missing:
            problems.append('an executor is being started anew')
        self._problems.report(problems)
        message = '; '.join([*problems, f'loading {", ".join(loading)}' if loading else
                             f'serving {", ".join(ready)}',
                             *([] if self._infer else ['inactive'])])
        return Status(message, {
            'site': state['site'], 'executors': state['executors'],
            'sites_reached': len(state['links']), 'docked': ' '.join(state['docked']),
            'waiting_for_answers': self._infer.waiting if self._infer else 0,
            **_figures(state['services']),
            'authenticated': self._key is not None}, {
                **(self._infer.rejected if self._infer else {}),
                **{f'http_{cause}': count for cause, count in (
                    self._server.rejected if self._server else {}).items()}},
            not problems)


def _figures(services: Mapping[str, Any]) -> dict[str, Any]:
    """Return what became of the requests of each service, and how long they took."""
    values: dict[str, Any] = {}
    for name, found in services.items():
        values |= {f'{name}_{fate.value}': Total(found[fate.value]) for fate in InferFate}
        values[f'{name}_waiting'] = found['waiting']
        if found['p95_ms'] is not None:
            values[f'{name}_p95_ms'] = Figure(found['p95_ms'], '.1f')
    return values


def main(args: list[str] | None = None) -> None:
    """Run the gateway node."""
    run_node(GatewayNode, args)


if __name__ == '__main__':
    main()
