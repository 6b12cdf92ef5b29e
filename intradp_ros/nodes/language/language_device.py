# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Language models in a device node: blocks of its plans, and requests where it is the head."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TYPE_CHECKING

from intradp_ros.blobs.store import BlobStore
from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.nodes.common.call_seals import CallSeals, sros2_enforces
from intradp_ros.nodes.common.device_parameter import DEVICE
from intradp_ros.nodes.common.key_parameter import KEY_FILE, open_key
from intradp_ros.nodes.common.prometheus import Figure, Total
from intradp_ros.nodes.common.weight_parameters import store_of
from intradp_ros.nodes.fleet.device_node import DeviceNode
from intradp_ros.nodes.language.language_parameters import HOLD, KEYED, LANGUAGE_MODEL
from intradp_ros.nodes.language.named_model import opened
from intradp_ros.nodes.language.served_text import NO_PLAN, ServedText
from intradp_ros.nodes.language.text_actions import CLOSED, MOST_BYTES, TextActions
from intradp_ros.runtime.member.role import Host
from intradp_ros.runtime.requests.admission import AdmissionLimits, ClientRates
from intradp_ros.runtime.requests.text_intake import TextIntake
from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.systems.language.head import Head, HeadPolicy
from intradp_ros.systems.language.kernels import kernels_on
from intradp_ros.systems.language.role import LanguageOptions, LanguageRole
from intradp_ros.web.access import ApiKeys, check_address, Clients

if TYPE_CHECKING:
    from intradp_ros.runtime.models.model import SharedModel
    from intradp_ros.web.guard import Guard
    from intradp_ros.web.web_server import WebServer


class LanguageDevice:
    """
    Takes part in language models; with `answers` it answers requests by actions and HTTP.

    :raises ValueError: if the endpoint has no keys where it needs some, what it needs is not
        installed, or there is no such device to compute on.
    """

    def __init__(self, node: DeviceNode, given: Mapping[str, Any]) -> None:
        self._node, self._given = node, given
        self.models: Mapping[str, SharedModel] = {}
        self._store: BlobStore = store_of(given)
        self._names: dict[str, str] = {}
        self._device = open_device(given[DEVICE.name])
        if given[LANGUAGE_MODEL.name]:
            manifest = opened(given[LANGUAGE_MODEL.name], self._store)
            node.until_deactivated.enter_context(self._store.keeping(manifest.digests))
            self._names[manifest.digest] = manifest.name
            node.info(f'model {manifest.name}: {len(manifest.blocks)} blocks, '
                      f'digest {manifest.digest[:12]}')
        self._keys = ApiKeys.load(Path(given['api_keys'])) if given['api_keys'] else None
        self._served = ServedText(
            next(iter(self._names.values()), 'none'), given['without_plan'] == HOLD)
        self._guard: Guard | None = None
        self._server: WebServer | None = None
        if given['http_port']:
            check_address(given['http_address'], self._keys)

    def role(self, host: Host) -> LanguageRole:
        """Return the role; requests are answered while the node is active."""
        given, node = self._given, self._node
        limits = AdmissionLimits(given['served_at_once'], given['waiting'], given['per_client'])
        self._role = LanguageRole(
            host, self._store, LanguageOptions(
                int(1e6 * given['memory_mb']), HeadPolicy(
                    given['prompt_chunk'], limits, drafts=given['drafts']), self._names,
                self._device),
            self._headed)
        if given['answers']:
            seals = CallSeals(open_key(given[KEY_FILE.name], lambda text: None), node.refuse,
                              given['goals'] != KEYED or sros2_enforces(), CLOSED, MOST_BYTES)
            self._intake = TextIntake(self._served)
            node.until_deactivated.callback(self._intake.close)
            actions = TextActions(node, self._intake, given['max_tokens'],
                                  given['highest_priority'], seals)
            node.until_deactivated.callback(actions.close)
            if given['http_port']:
                self._open_endpoint()
            node.until_deactivated.callback(self._served.close)
        return self._role

    def _headed(self, head: Head | None) -> None:
        """Send requests to a head from now on."""
        if head and self._given['answers']:
            head.prepare()
        self._served.set(head)

    def weight_bytes(self, plan: PlanId) -> int:
        """Return the bytes of weights that the plan in use reads here."""
        return self._role.weight_bytes(plan)

    def status(self) -> Mapping[str, Any]:
        """Return how requests and the engine do; seconds and bytes since the plan's model came."""
        values: dict[str, Any] = {'computes_with': kernels_on(self._device).name}
        if engine := self._role.engine:
            meter, loader = engine.meter, engine.loader
            values |= {
                'rounds': Total(meter.rounds), 'computing_s': Total(meter.computing, '.3f'),
                'waiting_for_disk_s': Total(meter.disk, '.3f'),
                'waiting_for_peers_s': Total(meter.peers, '.3f'), 'sent_bytes': Total(meter.sent),
                'received_bytes': Total(meter.received), 'read_bytes': Total(loader.nbytes),
                'read_bytes_per_s': Figure(loader.nbytes / loader.seconds, '.3g')
                if loader.seconds else ''}
        if head := self._role.head:
            state = head.state()
            values |= {
                'model': head.name, 'tokens': Total(state.tokens),
                'prompt_tokens': Total(state.prompt_tokens),
                'ms_per_token': Figure(1e3 * state.token_seconds, '.1f'), 'serving': state.serving,
                'waiting': state.waiting, 'restarts': Total(state.restarts),
                'drafted_tokens': Total(state.drafted_tokens),
                'accepted_drafts': Total(state.accepted_tokens),
                'shared_prompt_tokens': Total(state.shared_tokens),
                'disk_that_brakes': state.brake,
                **{f'waiting_for_disk_ms_of_{name}': Figure(1e3 * seconds, '.1f')
                   for name, seconds in state.uncovered.items()},
                **{f'requests_{fate}': Total(count) for fate, count in state.fates.items()}}
        if self._given['answers'] and self._served.held:
            values['trouble'] = f'{self._served.held} requests are held: {NO_PLAN}'
        return values

    def rejected(self) -> Mapping[str, int]:
        """Return the requests and connections by HTTP that were not taken, by cause."""
        return {f'http_{cause}': count for source in (self._guard, self._server) if source
                for cause, count in source.rejected.items()}

    def _open_endpoint(self) -> None:
        # what only an endpoint needs is an extra
        from intradp_ros.web.guard import Guard
        from intradp_ros.web.openai_api import openai_app
        from intradp_ros.web.web_server import WebServer
        given = self._given
        self._guard = Guard(openai_app(self._intake), Clients(
            self._keys, ClientRates(given['http_rate'], given['http_burst'])))
        try:
            self._server = WebServer(self._guard, given['http_address'], given['http_port'])
        except OSError as error:
            raise ValueError(f'http_port {given["http_port"]} of {given["http_address"]}: '
                             f'{error.strerror}') from error
        self._node.until_deactivated.callback(self._server.close)
        self._node.info(f'OpenAI-compatible endpoint: {self._server.url}/v1')
