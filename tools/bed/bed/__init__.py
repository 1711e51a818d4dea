# SPDX-License-Identifier: Apache-2.0
"""The test bed: real kubeadm clusters in podman containers, with a simulated cloud as their network.

Standard library only, because it runs before any virtual environment exists:
``PYTHONPATH=tools/bed python3 -m bed --help``.
"""
