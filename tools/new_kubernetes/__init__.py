# SPDX-License-Identifier: Apache-2.0
"""Finds what a Kubernetes minor changes for this project: first from its sources (`make new-kubernetes`), and once the
sources can be built, from its programs (programs.py, `make new-kubernetes-cluster`).
"""
