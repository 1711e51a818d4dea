# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' second encoding: messages, and how types of objects are read from them. It imports none of these
types."""

#: Before each object in protobuf (`k8s.io/apimachinery/pkg/runtime/serializer/protobuf`).
MAGIC = b"k8s\x00"
