# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The server's node: takes part in the inferences of robots."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
import math
from pathlib import Path
from typing import Any

from intradp_ros.dds.dds_channel import DdsChannel
from intradp_ros.dds.paths import MAX_SESSIONS
from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.link.chunk_size import LEAST_CHUNK_BYTES, MAX_CHUNK_BYTES
from intradp_ros.msg import OperatorProfile
from intradp_ros.nodes.common.announcement_seals import Announcer, MAX_BYTES
from intradp_ros.nodes.common.device_parameter import DEFAULT_MODEL, DEVICE
from intradp_ros.nodes.common.diagnostics import added, crossed, Status
from intradp_ros.nodes.common.key_parameter import KEY_FILE, key_of
from intradp_ros.nodes.common.lifecycle import LATCHED, ManagedNode, run_node
from intradp_ros.nodes.common.parameters import check_topic, Parameter
from intradp_ros.nodes.common.prometheus import Figure
from intradp_ros.nodes.common.receiving import Receiver
from intradp_ros.nodes.common.silence import network_of
from intradp_ros.nodes.sharing.profile_publisher import (
    profile_model,
    PROFILE_TOPIC,
    ProfilePublisher,
)
from intradp_ros.nodes.sharing.weight_loading import weight_bytes, WeightLoading, WEIGHTS_FOLDER
from intradp_ros.profiling.drift import BEYOND_BOOKS, DriftMeter
from intradp_ros.profiling.kept_memory import KeptMemory
from intradp_ros.profiling.machine import available_cores, prepare_process, settle_process
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.execution.processor import Processor
from intradp_ros.runtime.models.catalogue import example_inputs, ModelSpec
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.models.weight_file import Weights
from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.split.kernel_device import HOST, KernelDevice
from intradp_ros.srv import LoadWeights
from intradp_ros.systems.sharing.book.watch import DriftWatch
from intradp_ros.systems.sharing.session.greeting import USUAL_SESSIONS
from intradp_ros.systems.sharing.session.server import OffloadServer

#: Weights that were loaded meanwhile and are served; older ones are let go.
MOST_LOADED = 2


class OffloadNode(ManagedNode):
    """
    Loads its catalogue of models, profiles them, and serves robots.

    Publishes `operator_profiles` (latched) and `diagnostics`; tensors and
    control frames go through topics below the server's name.  Robots are
    served while the node is active.
    """

    PARAMETERS = (
        Parameter('server', 'offload', 'Name under which robots find this server.',
                  check=check_topic),
        Parameter('models', [DEFAULT_MODEL],
                  'Catalogue: "package.module:factory shape dtype" or archive paths.'),
        Parameter('axis', -1, 'Split axis of the input; -1 takes the best one.',
                  -1, 4),
        DEVICE,
        KEY_FILE,
        Parameter('threads', 1, 'CPU threads for operators.', 1, 256),
        Parameter('chunk_bytes', LEAST_CHUNK_BYTES,
                  'Least payload bytes of a chunk; fast links get larger ones.', 1024,
                  MAX_CHUNK_BYTES),
        Parameter('max_sessions', USUAL_SESSIONS,
                  'Robots served at a time; another one is refused.',
                  1, MAX_SESSIONS),
        WEIGHTS_FOLDER,
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('offload_node', **kwargs)
        self.server: OffloadServer | None = None
        self._receiver = Receiver(self)

    def setup(self, parameters: dict[str, Any]) -> None:
        """Load and profile the catalogue."""
        prepare_process(parameters['threads'])
        self._settings = parameters
        self._key = key_of(parameters, self.warn)
        axis = parameters['axis'] if parameters['axis'] >= 0 else None
        device = open_device(parameters[DEVICE.name])
        self.info(f'computing on {device.hardware or device.name}')
        self._lanes = lanes_of(device, parameters['threads'])
        catalogue = self._catalogue(parameters['models'], axis, device)
        self._names = {model.digest: text for text, model in catalogue.items()}
        self._catalogued = {text: self._profiled(model) for text, model in catalogue.items()}
        self._models: dict[str, SharedModel] = {}
        self._profiles = self.publish_on(OperatorProfile, PROFILE_TOPIC, LATCHED)
        self._watches: dict[str, DriftWatch] = {}
        self._announcer = Announcer(self._key)
        self._announcer.answer_on(self, self._receiver, OperatorProfile, PROFILE_TOPIC)
        self._published: dict[str, ProfilePublisher] = {}
        self._loaded: list[str] = []
        for model, profile in self._catalogued.values():
            self._offer(model, profile)
        if parameters[WEIGHTS_FOLDER.name]:
            WeightLoading(self, parameters[WEIGHTS_FOLDER.name],
                          lambda: max(map(weight_bytes, self._models.values())),
                          self._load_weights, self._key)
        heard = self._receiver.subscribe(OperatorProfile, PROFILE_TOPIC, self._hear_profile,
                                         LATCHED, 'profile', MAX_BYTES[OperatorProfile])
        self.until_cleanup.callback(self.destroy_subscription, heard)
        self.diagnose(self._status)

    @property
    def callback_threads(self) -> int:
        """Return 2 where weights are loaded meanwhile."""
        return 2 if self.get_parameter(WEIGHTS_FOLDER.name).value else 1

    def _offer(self, model: SharedModel, profile: Profile) -> None:
        """Have a model in the catalogue, and publish its profile."""
        published = ProfilePublisher(self._profiles, 'server', model, profile, self.info,
                                     self.get_fully_qualified_name(), self._announcer)
        published.begin()
        self._models = {**self._models, model.digest: model}
        self._published = {**self._published, model.digest: published}
        self._watches[model.digest] = DriftWatch(model.split, profile, published.drifted,
                                                 DriftMeter(step=BEYOND_BOOKS))

    def _load_weights(self, request: Any, pictures: Path | None, weights: Weights) -> Any:
        """Serve a model of the catalogue with other weights, too; on the service's thread."""
        if pictures is not None:
            raise ValueError("pictures are tried by the robot's node: leave them out here")
        text, model, profile = self._fitting(weights)
        if model.digest not in self._models:
            self._offer(model, profile)
            self._names[model.digest] = f'{text} with {Path(request.path).name}'
            if self.server:
                self.server.add(model, self._names[model.digest], self._watches[model.digest])
            self._loaded.append(model.digest)
            for digest in self._loaded[:-MOST_LOADED]:
                self._let_go(digest)
        return LoadWeights.Response(
            success=True, digest=model.digest, accuracy=math.nan, accuracy_before=math.nan,
            message=f'serves {text} with these weights, too, as model {model.digest[:12]}')

    def _fitting(self, weights: Weights) -> tuple[str, SharedModel, Profile]:
        """Return the first model of the catalogue that weights fit, with them; or raise."""
        wrong: Exception = ValueError('the catalogue has no model')
        for text, (model, profile) in self._catalogued.items():
            try:
                found = ModelSpec.parse(text).load(model.split.axis, model.split.device, weights)
            except ValueError as error:
                wrong = error
                continue
            return text, found.tuned(model.tuning), replace(profile, digest=found.digest)
        raise ValueError(str(wrong)) from wrong

    def _let_go(self, digest: str) -> None:
        """Serve no new session of weights that newer ones have followed."""
        self._loaded.remove(digest)
        if self.server:
            self.server.forget(digest)
        self._models = {key: one for key, one in self._models.items() if key != digest}
        self._published = {key: one for key, one in self._published.items() if key != digest}
        self._watches.pop(digest), self._names.pop(digest)

    def start(self) -> None:
        """Listen to robots."""
        settle_process()
        self._memory = KeptMemory()
        channel = DdsChannel(self.context, self._settings['server'], 'server',
                             namespace=self.get_namespace(),
                             chunk_bytes=self._settings['chunk_bytes'], key=self._key)
        self.server = OffloadServer(channel, self._models, self.info, self._watches, self._names,
                                    processor=Processor(self._lanes),
                                    max_sessions=self._settings['max_sessions'])
        channel.only(self.server.sessions.__contains__)
        self.until_deactivated.callback(self._stop, self.server)
        self.info(f'serves {"; ".join(self._names.values())} as {self._settings["server"]}, '
                  f'device {self._settings[DEVICE.name]}, {network_of(self)}')

    def _hear_profile(self, message: OperatorProfile) -> None:
        """See whether another speaks in this node's name."""
        for published in self._published.values():
            published.hear(message)

    def _stop(self, server: OffloadServer) -> None:
        """End all sessions; robots go on alone."""
        self.server = None
        server.close()

    def _catalogue(self, texts: Sequence[str], axis: int | None, device: KernelDevice,
                   ) -> dict[str, SharedModel]:
        """
        Load the models before the first is profiled, which takes long; say what cannot be.

        :raises ValueError: if none can.
        """
        loaded: dict[str, SharedModel] = {}
        self._skipped: dict[str, Exception] = {}
        for text in filter(None, texts):
            try:
                loaded[text] = model = ModelSpec.parse(text).load(axis, device)
            except (ValueError, CaptureError) as error:
                self._skipped[text] = error
                self.get_logger().error(f'skipped model {text}: {error}')
            else:
                self.info(f'model {text}: {len(model.split.operators)} operators, '
                          f'digest {model.digest[:12]}')
        if not loaded:
            raise ValueError('; '.join(map(str, self._skipped.values()))
                             or 'parameter models is empty: name at least one model')
        return loaded

    def _profiled(self, model: SharedModel) -> tuple[SharedModel, Profile]:
        profile = profile_model(model, example_inputs(model), self.info)
        return model.tuned(profile.tuning), profile

    def _status(self) -> Status:
        """Return what diagnostics say."""
        for published in self._published.values():
            published.insist()
        server = self.server
        if server is None:
            return Status('inactive')
        self._memory.look()
        rejected = added(server.rejections.by_cause(), server.channel.rejected,
                         self._receiver.rejections.by_cause())
        message = '; '.join(['serving', *(f'skipped model {text}' for text in self._skipped)])
        return Status(message, {
            'sessions': len(server.sessions), 'max_sessions': server.max_sessions,
            'sessions_computing': Figure(server.processor.load, '.2f'),
            'models': len(server.models), 'authenticated': self._key is not None,
            **crossed(server.sent, server.received)}, rejected, not self._skipped)


def lanes_of(device: KernelDevice, threads: int) -> int:
    """Return how many inferences a device computes at a time without taking turns."""
    return max(1, available_cores() // threads) if device is HOST else 1


def main(args: list[str] | None = None) -> None:
    """Run the offload node."""
    run_node(OffloadNode, args)


if __name__ == '__main__':
    main()
