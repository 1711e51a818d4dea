# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probes of the gates: each healthy component passes its probe, so that the change of a healthy component is never reverted."""

from __future__ import annotations

import datetime
import http.server
import ssl
import threading

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.host import probes
from ansible_collections.outoftree.ccm.plugins.module_utils.host import settings as _settings
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def certificate(folder, name):
    """Write NAME.crt and NAME.key; return their paths. The certificate is self-signed, and has no SKI, AKI or host name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key()).serial_number(7) \
        .not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(hours=1)).sign(key, hashes.SHA256())
    (folder / (name + ".crt")).write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / (name + ".key")).write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return str(folder / (name + ".crt")), str(folder / (name + ".key"))


@pytest.fixture
def server(tmp_path):
    """Return a function that starts an HTTPS server and returns (port, certificate). The server answers every path with
    the given status.
    """
    started = []

    def start(status=200, name="serving"):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status)
                self.end_headers()
                self.wfile.write(b"said " + self.path.encode())

            def log_message(self, *arguments):
                pass

        crt, key = certificate(tmp_path, name)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(crt, key)
        made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        made.socket = context.wrap_socket(made.socket, server_side=True)
        threading.Thread(target=made.serve_forever, daemon=True).start()
        started.append(made)
        return made.server_address[1], crt

    yield start
    for made in started:
        made.shutdown()
        made.server_close()


def apiserver(port, serving, authority):
    return ["kube-apiserver", "--secure-port={0}".format(port), "--tls-cert-file=" + serving, "--client-ca-file=" + authority]


def test_an_api_server_may_serve_a_certificate_of_another_authority(server, tmp_path):
    """The API server's own certificate file tells which certificate to trust; client-ca-file is about clients."""
    port, serving = server()
    authority, unused = certificate(tmp_path, "clients")
    assert probes.component_health("kube-apiserver", apiserver(port, serving, authority)) == ""
    ill = probes.component_health("kube-apiserver", apiserver(port, authority, authority))
    assert "its certificate is not the one in" in ill and authority in ill
    ill = probes.component_health("kube-apiserver", apiserver(port, str(tmp_path / "none.crt"), authority))
    assert "certificate verify failed" in ill, "without the file the authority decides"


def test_an_authority_of_an_old_kubeadm_is_trusted_with_a_new_python(monkeypatch, tmp_path):
    """Python 3.13 and later require key identifiers (VERIFY_X509_STRICT), which kubeadm up to 1.18 did not write."""
    real = ssl.create_default_context

    def strict(*arguments, **options):
        context = real(*arguments, **options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    context = probes._trusting(certificate(tmp_path, "ca")[0])
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT and context.verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (401, True), (403, True), (404, False), (500, False)])
def test_a_kubelet_without_a_health_port_answers_on_its_own(server, tmp_path, status, healthy):
    """healthzPort 0 turns the health port off. The kubelet's API also serves /healthz, to authenticated clients."""
    port, unused = server(status)
    config = tmp_path / "config.yaml"
    config.write_text("healthzPort: 0\nport: {0}\naddress: 127.0.0.1\n".format(port))
    ill = probes.kubelet_health(_settings.kubelet_settings(["kubelet", "--config=" + str(config)]))
    assert (ill == "") is healthy
    assert healthy or "its /healthz on port {0} answers {1}".format(port, status) in ill


def test_drop_ins_of_the_kubelets_configuration_count_and_flags_count_more(tmp_path):
    config, drop_ins = tmp_path / "config.yaml", tmp_path / "conf.d"
    drop_ins.mkdir()
    config.write_text("healthzPort: 1\nstaticPodPath: /one\npodLogsDir: /logs\n")
    (drop_ins / "10.conf").write_text("healthzPort: 2\nhealthzBindAddress: 127.0.0.2\n")
    (drop_ins / "20.conf").write_text("apiVersion: v1\nhealthzPort: 3\n")
    (drop_ins / "README").write_text("healthzPort: 9\n")
    argv = ["kubelet", "--config=" + str(config), "--config-dir=" + str(drop_ins)]
    found = _settings.kubelet_settings(argv)
    assert (found["healthz_port"], found["healthz_address"], found["static_pod_path"]) == ("3", "127.0.0.2", "/one")
    assert _settings.kubelet_settings([*argv, "--healthz_port=4"])["healthz_port"] == "4"


def test_a_k3s_server_is_asked_on_its_own_port(server, tmp_path, monkeypatch):
    monkeypatch.setattr(probes, "kubelet_health", lambda settings: "")
    port, serving = server()
    assert probes.rancher_health("k3s-agent.service", str(tmp_path), port) == ""
    assert "port {0}".format(port) in probes.rancher_health("k3s.service", str(tmp_path), port)
    assert "port 6443" in probes.rancher_health("k3s.service", str(tmp_path))


# -- the baseline ------------------------------------------------------------------------------------------------------


def test_a_probe_is_asked_again_before_a_component_counts_as_ill(monkeypatch):
    slept, answers = [], ["refused", "refused", ""]
    monkeypatch.setattr(probes.time, "sleep", slept.append)
    assert probes.baseline(lambda: answers.pop(0)) == "" and len(slept) == 2
    assert probes.baseline(lambda: "refused") == "refused" and len(slept) == 2 + probes.BASELINE_ATTEMPTS - 1


def test_settings_of_a_configuration_are_read_as_the_kubelet_reads_them(tmp_path):
    config, folder = tmp_path / "config.json", tmp_path / "conf.d"
    config.write_text('{\n\t"port": 1,\n\t"healthzPort": 2, "staticPodPath": "/pods/", "address": null}')
    argv = ["kubelet", f"--config={config}", f"--config-dir={folder}"]
    found = _settings.kubelet_settings(argv)
    assert (found["port"], found["healthz_port"], found["static_pod_path"], found["address"]) == ("1", "2", "/pods", "")
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "1.conf").write_text("port : 3\nstaticPodPath: >-\n  /deep\n---\nport: 4\n")
    (folder / ".hidden.conf").write_text("port: 5\nhealthzPort: null\n")
    (folder / "sub" / "2.yaml").write_text("port: 6\n")
    found = _settings.kubelet_settings(argv)
    assert (found["port"], found["healthz_port"], found["static_pod_path"]) == ("3", "10248", "/deep")
