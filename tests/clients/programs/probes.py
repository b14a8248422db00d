"""The calls of grpc-health-probe and of Kubernetes, and reflection as grpcurl asks for it"""

import sys

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase


def main(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "add_sub"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING, service
        watching = health.Watch(health_pb2.HealthCheckRequest(service="missing"), timeout=10)
        assert next(watching).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        watching.cancel()

        described = ProtoReflectionDescriptorDatabase(channel)
        services = set(described.get_services())
        assert {"inference.GRPCInferenceService", "grpc.health.v1.Health"} <= services, services
        pool = DescriptorPool(described)
        method = pool.FindServiceByName("inference.GRPCInferenceService").FindMethodByName("ModelMetadata")
        asked, answered = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        call = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelMetadata", asked.SerializeToString, answered.FromString
        )
        metadata = call(asked(name="add_sub"), timeout=10)
        assert [one.name for one in metadata.inputs] == ["INPUT0", "INPUT1"]


main(sys.argv[2])
