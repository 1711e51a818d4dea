# SPDX-License-Identifier: Apache-2.0
"""The names of guest systems in the label of the instance type, as cloud-provider-vsphere gives them. No I/O.

vSphere has an identifier for each guest system, such as `ubuntu64Guest`. Identifiers without a name are `unknown`.
"""

from __future__ import annotations

#: Names of guest systems, grouped by the identifiers that stand for a NAME. `_PLAIN`: NAMEGuest. `_BOTH`: NAMEGuest and
#: NAME_64Guest. `_ONLY_64`: NAME_64Guest. `_WIDE`: NAMEGuest and NAME64Guest.
_PLAIN = (
    "centos centos64 dos eComStation eComStation2 mandrake netware4 netware5 netware6 nld9 oes "
    "openServer5 openServer6 os2 rhel2 sjds sles sles64 solaris6 solaris7 solaris8 solaris9 vmkernel "
    "vmkernel5 vmkernel6 vmkernel65 win31 win95 win98 "
)
_BOTH = (
    "asianux3 asianux4 centos6 centos7 debian10 debian4 debian5 debian6 debian7 debian8 debian9 "
    "oracleLinux6 oracleLinux7 rhel3 rhel4 rhel5 rhel6 rhel7 sles10 sles11 sles12 solaris10 "
)
_ONLY_64 = "asianux5 asianux7 rhel10 rhel8 rhel9 solaris11 "
_WIDE = "fedora freebsd mandriva opensuse oracleLinux suse ubuntu "
#: Name -> its identifiers without `Guest`.
_OTHERS = {
    "coreos": "coreos64",
    "darwin": (
        "darwin darwin10 darwin10_64 darwin11 darwin11_64 darwin12_64 darwin13_64 darwin14_64 "
        "darwin15_64 darwin16_64 darwin64"
    ),
    "linux": (
        "genericLinux other24xLinux other24xLinux64 other26xLinux other26xLinux64 other3xLinux "
        "other3xLinux64 otherLinux otherLinux64"
    ),
    "other": "other",
    "photon": "vmwarePhoton64",
    "rhel": "redhat",
    "turbolinux": "turboLinux turboLinux64",
    "unixware7": "unixWare7",
    "win10": "windows9 windows9_64",
    "win10server": "windows9Server64",
    "win2000advserv": "win2000AdvServ",
    "win2000pro": "win2000Pro",
    "win2000serv": "win2000Serv",
    "win7": "windows7 windows7_64",
    "win7server": "windows7Server64",
    "win8": "windows8 windows8_64",
    "win8server": "windows8Server64",
    "windowshyperv": "windowsHyperV",
    "winlonghorn": "winLonghorn winLonghorn64",
    "winme": "winMe",
    "winnetbusiness": "winNetBusiness",
    "winnetdatacenter": "winNetDatacenter winNetDatacenter64",
    "winnetenterprise": "winNetEnterprise winNetEnterprise64",
    "winnetstandard": "winNetStandard winNetStandard64",
    "winnetweb": "winNetWeb",
    "winnt": "winNT",
    "winvista": "winVista winVista64",
    "winxphome": "winXPHome",
    "winxppro": "winXPPro winXPPro64",
}

NAMES: dict[str, str] = {
    **{f"{name}Guest": name for name in (_PLAIN + _BOTH + _WIDE).split()},
    **{f"{name}_64Guest": name for name in (_BOTH + _ONLY_64).split()},
    **{f"{name}64Guest": name for name in _WIDE.split()},
    **{f"{part}Guest": name for name, ids in _OTHERS.items() for part in ids.split()},
    "otherGuest64": "other",
}


def guest_system(guest_id: str) -> str:
    """Return the name for an identifier of vSphere, `unknown` if it has none."""
    return NAMES.get(guest_id, "unknown")
