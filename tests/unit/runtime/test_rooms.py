# SPDX-License-Identifier: Apache-2.0
"""How the runtime is laid out: rules that a newcomer who looks for a file can rely on."""

import re
import tomllib
from collections import Counter
from pathlib import Path

import grimp
import pytest

RUNTIME = Path(__file__).parents[3] / "runtime" / "ccm"
LONGEST = 450


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph("ccm", include_external_packages=False, cache_dir=None)


def test_no_two_files_have_one_name():
    """Providers are exempt: their files have the contract's words as names (test_provider_files.py)."""
    names = Counter(
        path.name
        for path in RUNTIME.rglob("*.py")
        if path.name != "__init__.py" and not path.is_relative_to(RUNTIME / "providers")
    )
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("path", sorted(RUNTIME.rglob("*.py")), ids=lambda path: path.name)
def test_a_file_is_about_one_subject(path):
    assert len(path.read_text().splitlines()) <= LONGEST


def test_imports_go_in_no_circle(graph):
    """Imports only for types count, too: files that import one another in a circle are one subject."""
    left = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    folders = set(map(folder_of, left))
    for module in left:  # a package's `__init__` imports what the package exports
        left[module] -= {each for each in folders if module.startswith(f"{each}.")}
    assert circles(left) == {}


def test_folders_import_one_another_in_no_circle(graph):
    """This includes nested folders: either a folder imports the files around it, or they import the folder."""
    left = {folder: set() for folder in map(folder_of, graph.modules)}
    for module in graph.modules - left.keys():  # not a package's `__init__`: it exports names of the whole package
        imported = graph.find_modules_directly_imported_by(module) - {"ccm"}
        left[folder_of(module)] |= set(map(folder_of, imported)) - {folder_of(module)}
    assert circles(left) == {}


def folder_of(module: str) -> str:
    is_folder = (RUNTIME.parent / Path(*module.split(".")) / "__init__.py").exists()
    return module if is_folder else module.rpartition(".")[0]


def circles(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the modules that are in a circle or lead into one, with their imports."""
    left = dict(imports)
    while ends := {name for name, imported in left.items() if not imported & left.keys()}:
        for name in ends:
            del left[name]
    return left


def test_circles_are_seen():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}).keys() == {"a", "b", "c"}


def test_the_toolkit_names_every_helper():
    toolkit = RUNTIME / "cloud" / "toolkit"
    text = (toolkit / "__init__.py").read_text()
    assert [path.stem for path in toolkit.glob("[a-z]*.py") if f"`{path.stem}`" not in text] == []


def test_a_room_of_a_process_gets_its_own_settings_and_not_all_options(graph):
    """Three files know all options: one starts the process, one splits the options, one selects the controllers."""
    rooms = ("ccm.manager.", "ccm.serving.", "ccm.gateway.", "ccm.engine.", "ccm.controllers.")
    knowing = {
        module
        for module in graph.find_modules_that_directly_import("ccm.options.command_line")
        if module.startswith(rooms)
    }
    assert knowing == {f"ccm.manager.{name}" for name in ("process", "room_settings", "running_controllers")}


PROJECT = tomllib.loads((RUNTIME.parent / "pyproject.toml").read_text())
PROVIDERS = PROJECT["project"]["entry-points"]["ccm.providers"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_provider_imports_the_contract_and_the_toolkit(graph, provider):
    modules = [each for each in graph.modules if each.startswith(f"ccm.providers.{provider}")]
    imported = {found for module in modules for found in graph.find_modules_directly_imported_by(module)}
    others = {each for each in imported if not each.startswith((f"ccm.providers.{provider}", "ccm.cloud"))}
    assert others <= {"ccm"} and "ccm.cloud" in imported


def test_the_linter_of_imports_knows_every_room_and_every_provider():
    contracts = {each["name"].partition(":")[0]: each for each in PROJECT["tool"]["importlinter"]["contracts"]}
    providers = {value.partition(":")[0] for value in PROVIDERS.values()}
    assert set(contracts["Providers do without one another"]["modules"]) == providers
    rooms = {
        f"ccm.{path.stem}" for path in RUNTIME.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    rooms -= {"ccm.__init__", "ccm.__main__"}
    layers = contracts["Layers"]["layers"]
    assert {room for layer in layers for room in re.split(r" [|:] ", layer)} == rooms
    beside = {"ccm.base", "ccm.cloud", "ccm.providers"}
    assert set(contracts["The toolkit is for providers"]["source_modules"]) == rooms - beside
