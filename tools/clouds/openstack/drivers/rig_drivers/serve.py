# SPDX-License-Identifier: Apache-2.0
"""``python -m rig_drivers.serve MODULE[+BESIDE] PORT [ARGUMENT...]``: one WSGI service on loopback, in many threads.

MODULE has an ``application``; BESIDE is imported after it and runs in the same process. The service gets the arguments
as its own (octavia reads ``--config-file`` there).
"""

import importlib
import sys

import waitress

THREADS = 12


def main() -> None:
    modules, port, *arguments = sys.argv[1:]
    module, _, beside = modules.partition("+")
    sys.argv = [module, *arguments]
    application = importlib.import_module(module).application
    if beside:
        importlib.import_module(beside)
    waitress.serve(
        application,
        host="127.0.0.1",
        port=int(port),
        threads=THREADS,
        channel_timeout=600,
        ident=None,
        # The rig's proxy reports the client's scheme, so that links have it, too.
        trusted_proxy="127.0.0.1",
        trusted_proxy_headers={"x-forwarded-proto"},
    )


if __name__ == "__main__":
    main()
