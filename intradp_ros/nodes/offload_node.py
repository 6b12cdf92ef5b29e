# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The server's node: takes part in the inferences of robots."""
from __future__ import annotations

from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus

from intradp_ros.dds.channel import DdsChannel
from intradp_ros.execution.catalogue import example_inputs, ModelSpec
from intradp_ros.execution.model import SharedModel
from intradp_ros.execution.server import OffloadServer
from intradp_ros.msg import OperatorProfile
from intradp_ros.nodes.diagnostics import diagnostics
from intradp_ros.nodes.lifecycle import LATCHED, ManagedNode, run_node
from intradp_ros.nodes.parameters import Parameter
from intradp_ros.nodes.profiles import profile_message, profile_model, PROFILE_TOPIC
from intradp_ros.profiling.device import prepare_process


class OffloadNode(ManagedNode):
    """
    Loads its catalogue of models, profiles them, and serves robots.

    Publishes `operator_profiles` (latched) and `diagnostics`; tensors and
    control frames go through topics below the server's name.
    """

    PARAMETERS = (
        Parameter('server', 'offload', 'Name under which robots find this server.'),
        Parameter('models', ['intradp_ros.zoo.hed:hed 1x3x160x384 uint8'],
                  'Catalogue: "package.module:factory shape dtype" or archive paths.'),
        Parameter('axis', -1, 'Split axis of the input; -1 takes the longer spatial one.',
                  -1, 4),
        Parameter('threads', 1, 'CPU threads for operators.', 1, 256),
        Parameter('chunk_bytes', 15000, 'Payload bytes of one chunk.', 1024, 61440),
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('offload_node', **kwargs)
        self.server: OffloadServer | None = None
        self._closing: list[Any] = []

    def setup(self, parameters: dict[str, Any]) -> None:
        """Load and profile the catalogue, then listen."""
        prepare_process(parameters['threads'])
        axis = parameters['axis'] if parameters['axis'] >= 0 else None
        models = [self._load(text, axis) for text in parameters['models'] if text]
        if not models:
            raise ValueError('parameter models is empty: name at least one model')
        profiles = self.create_publisher(OperatorProfile, PROFILE_TOPIC, LATCHED)
        self._closing.append(profiles)
        for _, message in models:
            profiles.publish(message)
        channel = DdsChannel(self.context, parameters['server'], 'server',
                             namespace=self.get_namespace(),
                             chunk_bytes=parameters['chunk_bytes'])
        self.server = OffloadServer(channel, {m.digest: m for m, _ in models}, self.info)
        self._diagnostics = self.create_publisher(DiagnosticArray, 'diagnostics', 10)
        self._closing += [self._diagnostics, self.create_timer(1.0, self._diagnose)]

    def teardown(self) -> None:
        """Close sessions and topics."""
        if self.server:
            self.server.close()
            self.server = None
        while self._closing:
            self._closing.pop().destroy()

    def _load(self, text: str, axis: int | None) -> tuple[SharedModel, OperatorProfile]:
        spec = ModelSpec.parse(text)
        model = spec.load(axis)
        self.info(f'model {spec.source}: {len(model.split.operators)} operators, '
                  f'digest {model.digest[:12]}')
        profile = profile_model(model, example_inputs(model), self.info)
        return model, profile_message('server', model, profile)

    def _diagnose(self) -> None:
        if self.server is None:
            return
        rejected = self.server.rejections.by_cause()
        level = DiagnosticStatus.WARN if rejected else DiagnosticStatus.OK
        self._diagnostics.publish(diagnostics(self, level, 'serving', {
            'sessions': len(self.server.sessions), 'models': len(self.server.models),
            **{f'rejected_{cause}': count for cause, count in rejected.items()}}))


def main(args: list[str] | None = None) -> None:
    """Run the offload node."""
    run_node(OffloadNode, args)


if __name__ == '__main__':
    main()
