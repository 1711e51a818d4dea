# SPDX-License-Identifier: Apache-2.0
"""Every command that a page shows is run by a test, or excused with a reason (tools/docs/commands.yml)."""

from __future__ import annotations

import re

from tools.docs import commands

PAGE = """# Title

```console
make one   # comment
make two
```

1. A step:

   ```sh
   kubectl create -f - <<EOF
   kind: Node
   EOF
   curl -d '# no comment' \\
     http://127.0.0.1
   ```

```console
$ ccm nodes
NODE  VERDICT
```

```text
make nothing
```
"""


def test_commands_are_read_as_people_read_them():
    assert list(commands.blocks(PAGE)) == [
        ["make one", "make two"],
        ["kubectl create -f - <<EOF\nkind: Node\nEOF", "curl -d '# no comment' \\\n  http://127.0.0.1"],
        ["ccm nodes"],
    ]


def test_every_command_is_run_by_a_test_or_excused():
    assert list(commands.problems()) == []


def test_testing_md_says_what_runs_them():
    text = commands.TESTING.read_text()
    assert commands.filled(text) == text, "run `make docs`"


def test_commands_in_a_sentence_name_what_is_there():
    targets = set(re.findall(r"^([a-z0-9-]+):", (commands.ROOT / "Makefile").read_text(), re.MULTILINE))
    books = {path.stem for path in (commands.ROOT / "playbooks").glob("*.yml")}
    for page in commands.pages():
        code = "\n".join(re.findall(r"`[^`\n]+`", (commands.ROOT / page).read_text()))
        assert set(re.findall(r"`make ([a-z][a-z0-9-]+)", code)) <= targets, page
        assert set(re.findall(r"\bplaybooks/(\w+)\.yml", code)) <= books, page
        assert set(re.findall(r"ansible-playbook [^`]*outoftree\.ccm\.(\w+)", code)) <= books, page
