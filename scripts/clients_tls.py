"""What programs of tests/newest are given to speak TLS: TESTED_BY_TLS, and the authority of the tests where each language
looks for those of the system, so that libraries have their default settings otherwise. TESTED_CERTIFICATE and TESTED_KEY
are what they show of themselves."""

import os
import subprocess

from harness.certificates import certificates

PASSWORD = "changeit"
JAVA_PROPERTIES = {"trustStore": "trust.p12", "trustStorePassword": PASSWORD, "keyStore": "client.p12",
                   "keyStorePassword": PASSWORD, "keyStoreType": "PKCS12"}  # fmt: skip


def run(*command):
    subprocess.run([str(word) for word in command], check=True, capture_output=True)


def make_java_stores(folder, identity):
    trust, own = folder / "trust.p12", folder / "client.p12"
    run("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", certificates().ca, "-storetype", "PKCS12",
        "-keystore", trust, "-storepass", PASSWORD)  # fmt: skip
    run("openssl", "pkcs12", "-export", "-in", identity.certificate, "-inkey", identity.key, "-out", own, "-passout",
        f"pass:{PASSWORD}")  # fmt: skip


def java_options(folder, with_certificate):
    words = []
    for name, value in JAVA_PROPERTIES.items():
        if with_certificate or name.startswith("trust"):
            words.append(f"-Djavax.net.ssl.{name}={folder / value if value.endswith('.p12') else value}")
    return " ".join(words)


def environment(language, folder, with_certificate):
    """For a program in that language; folder: for files."""
    identity = certificates().client
    given = {"TESTED_BY_TLS": "yes", "SSL_CERT_FILE": str(certificates().ca), "NODE_EXTRA_CA_CERTS": str(certificates().ca)}
    if with_certificate:
        given.update(TESTED_CERTIFICATE=str(identity.certificate), TESTED_KEY=str(identity.key))
    if language == "java":
        make_java_stores(folder, identity)
        given["JAVA_TOOL_OPTIONS"] = java_options(folder, with_certificate)
    return {**os.environ, **given}
