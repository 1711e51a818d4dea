# SPDX-License-Identifier: Apache-2.0
"""What a Kubernetes minor changes for this project: read in its sources, which are there first (`make new-kubernetes`),
and then said by its programs (programs.py, `make new-kubernetes-cluster`)."""
