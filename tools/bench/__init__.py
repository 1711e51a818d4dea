# SPDX-License-Identifier: Apache-2.0
"""Benchmarks against the upstream framework: `make bench` (docs/performance.md). Time is measured here, never in
tests."""
