# SPDX-License-Identifier: Apache-2.0
"""Reads the YAML form of vsphere.conf into the same sections as the INI form. No I/O."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from ccm.cloud.toolkit.gcfg_sections import GcfgSections, meant
from ccm.cloud.toolkit.located_yaml import Located, Problems, read

from .settings_sections import FOREIGN, IGNORED, REFUSED, SECTION_OF_YAML, SECTIONS

_YAML_OF_SECTION = {section: name for name, section in SECTION_OF_YAML.items()}


class YamlSections(GcfgSections):
    """A `GcfgSections` whose entries come from YAML: `insecureFlag` instead of `insecure-flag`, and a list where INI
    has values separated by commas."""

    def __init__(self, text: str) -> None:
        super().__init__("", SECTIONS, named=("VirtualCenter",), defaults="Global")
        problems = Problems("")
        top = read(text, problems)
        if not isinstance(top.value, dict) and not problems.reported:
            problems.add(top, "expected sections: global, vcenter, labels, nodes")
        for problem in problems.reported:
            self._doubt("", "", *problem)
        self._top: dict[str, Located] = top.value if isinstance(top.value, dict) else {}
        for name, value in self._top.items():
            if name.lower() in REFUSED:
                self.problems.append((value.line, f"{name}: {REFUSED[name.lower()]}"))
            elif name.lower() in FOREIGN:
                self.ignored.append(f"line {value.line}: {name} has no effect: {FOREIGN[name.lower()]}")
            elif name not in SECTION_OF_YAML:
                self._doubt_section(name, _YAML_OF_SECTION, value.line, f"{name}: unknown section")

    def names_of(self, section: str) -> list[str]:
        return list(self._mapping(self._top.get(_YAML_OF_SECTION[section]), _YAML_OF_SECTION[section]))

    def section(self, name: str, sub: str = "") -> Any:
        cls, spelt = SECTIONS[name], _YAML_OF_SECTION[name]
        mapping = self._top.get(spelt)
        where = f"{spelt}.{sub}" if sub else spelt
        if sub:
            mapping = self._mapping(mapping, spelt)[sub]
        fields = {camel(field.name): field for field in dataclasses.fields(cls)}
        ignored = {camel(key.replace("-", "_")): why for (of, key), why in IGNORED.items() if of == name}
        values: dict[str, Any] = {}
        for key, value in self._mapping(mapping, where).items():
            if key in ignored:
                self.ignored.append(f"line {value.line}: {where}.{key} has no effect: {ignored[key]}")
            elif key not in fields:
                self._doubt(name, key, value.line, f"{where}.{key}: unknown key; {meant(key, fields, 'keys')}")
            else:
                self._lines[name, sub, fields[key].name.replace("_", "-")] = value.line
                self._read(name, f"{where}.{key}", fields[key], value, values)
        return cls(**values)

    def _conclude(self, section: str, at: str, problem: str, or_at: str, sub: str) -> None:
        if not section:
            return super()._conclude(section, at, problem, or_at, sub)
        line = self._lines.get((section, sub, at), self._lines.get((section, sub, or_at), 0))
        if not line and sub:
            named = self._mapping(self._top.get(_YAML_OF_SECTION[section]), "")
            line = named[sub].line if sub in named else 0
        where = f"{_YAML_OF_SECTION[section]}.{sub}" if sub else _YAML_OF_SECTION[section]
        keys = re.sub(r"^[a-z-]+(, [a-z-]+)*(?=:)", lambda match: camel(match[0].replace("-", "_")), problem)
        self.problems.append((line, f"{where}: {keys}"))

    def _mapping(self, located: Located | None, where: str) -> dict[str, Located]:
        if located is None or located.value is None:
            return {}
        if isinstance(located.value, dict):
            return located.value
        self._doubt("", "", located.line, f"{where}: expected keys and values")
        return {}

    def _read(
        self, section: str, where: str, field: dataclasses.Field[Any], located: Located, values: dict[str, Any]
    ) -> None:
        raw, key = _text(located), field.name.replace("_", "-")
        if raw is None:
            self._doubt(section, key, located.line, f"{where}: expected one value, or a list of values without commas")
            return
        try:
            values[field.name] = field.metadata["kind"](raw) if raw else field.default
        except ValueError as error:
            self._doubt(section, key, located.line, f"{where}: {error}")


def camel(name: str) -> str:
    """Return the name of a field as YAML spells it: `insecureFlag` for `insecure_flag`."""
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


def _text(located: Located) -> str | None:
    """Return a value as INI spells it; None if it is neither a scalar nor a list of scalars without commas."""
    if isinstance(located.value, list):
        parts = [each.text for each in located.value]
        return ",".join(part for part in parts if part) if all(part and "," not in part for part in parts) else None
    return "" if located.value is None else located.text
