# SPDX-License-Identifier: Apache-2.0
"""labels.py write|read LABEL PATH...: give the files below the paths an SELinux label, or print the files that have
another label.
"""

import os
import sys

ATTRIBUTE = "security.selinux"


def files(paths):
    for path in paths:
        if os.path.isfile(path):
            yield path
        for folder, _, names in os.walk(path):
            for name in names:
                yield os.path.join(folder, name)


def main(verb, label, *paths):
    label = label.encode() + b"\0"
    for path in files(paths):
        if os.path.islink(path):
            continue
        if verb == "write":
            os.setxattr(path, ATTRIBUTE, label)
            print(path)
        elif ATTRIBUTE not in os.listxattr(path) or os.getxattr(path, ATTRIBUTE) != label:
            print(path)


main(*sys.argv[1:])
