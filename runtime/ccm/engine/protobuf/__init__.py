# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' second encoding: messages, and how the objects of `ccm.engine.objects` are read from them."""

#: Before each object in protobuf (`k8s.io/apimachinery/pkg/runtime/serializer/protobuf`).
MAGIC = b"k8s\x00"
