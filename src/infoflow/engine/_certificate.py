"""The self-signed certificate that authenticates a study and its workers to each other."""

from datetime import UTC, datetime, timedelta

from infoflow.foundation import missing_extra

_NAME = "infoflow-study"
_EARLIER = timedelta(days=1)
"""The clock of another machine may be behind, and the certificate must be valid there too."""
_LATER = timedelta(days=366)


def self_signed() -> tuple[str, str]:
    """A new certificate and its private key, both in PEM format.

    Raises:
        UserError: `cryptography` is not installed.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    except ImportError:
        raise missing_extra("--cluster listen", "cryptography", "cluster") from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + _LATER)
        .sign(key, SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.PEM).decode(), private.decode()
