# SPDX-License-Identifier: Apache-2.0
"""The `ccm` command. Without a subcommand it runs a cloud-controller-manager, with upstream's arguments."""

from __future__ import annotations

import importlib.util
import sys

NO_SIMULATOR = (
    "ccm sim: the simulated cloud is not installed. It is a separate package, outoftree-ccm-simcloud: install "
    "runtime/simcloud of this version's sources beside ccm, or use its image (runtime/simcloud/Containerfile)"
)


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 success, 1 failure, 2 invalid command line."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args[:1] == ["sim"]:
        if importlib.util.find_spec("ccm_simcloud") is None:
            print(NO_SIMULATOR, file=sys.stderr)
            return 1
        import ccm_simcloud

        return ccm_simcloud.main(args[1:])
    if args[:1] == ["check-provider"]:
        from .conformance import command

        return command.main(args[1:])
    if args[:1] == ["explain"]:
        from .commands import explain_node

        return explain_node.main(args[1:])
    if args[:1] == ["nodes"]:
        from .commands import list_nodes

        return list_nodes.main(args[1:])
    from .manager import logs
    from .manager import process as app
    from .options import command_line

    try:
        parsed = command_line.parse(args)
    except command_line.OptionsError as error:
        for problem in error.problems:
            print(f"ccm: {problem}", file=sys.stderr)
        print("ccm: see ccm --help", file=sys.stderr)
        return 2
    logs.configure(parsed.logging_format, parsed.v)
    return app.start(parsed)


if __name__ == "__main__":
    sys.exit(main())
