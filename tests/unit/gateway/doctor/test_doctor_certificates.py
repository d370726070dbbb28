"""Doctor checks of TLS roots."""

import ssl
from pathlib import Path

import certifi
import pytest

from gateway.operate.doctor.certificates import (
    LIBRARIES,
    TlsLibrary,
    _find_problems,
    check_certificates,
)
from sessions.values.finding import Finding
from tests.fakes.case import case_of, only, told
from tests.fakes.certificates import certified

PUBLIC = Path(certifi.where())


def private(folder: Path, name: str = "ca.internal") -> Path:
    """Create the file of a local root certificate."""
    folder.mkdir(exist_ok=True)
    certified(folder, name)
    return (folder / "certificate.pem").rename(folder / f"{name}.crt")


def trusting(*files: Path, by_system: bool = False) -> TlsLibrary:
    def made() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for file in files:
            context.load_verify_locations(cafile=str(file))
        return context

    return TlsLibrary(f"a library of {len(files)}", made, by_system)


def looked(environ: dict[str, str], folder: Path, *libraries: TlsLibrary) -> list[Finding]:
    return list(_find_problems(environ, [folder], libraries))


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file with the system's roots."""
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(PUBLIC.read_bytes())
    (tmp_path / "none").mkdir()
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    return bundle


async def test_the_libraries_of_this_machine_trust_some_roots(tmp_path: Path) -> None:
    found = await check_certificates(case_of(tmp_path))
    assert "fail" not in {each.level for each in found}
    names = [library.name for library in LIBRARIES]
    assert len(names) == 3


@pytest.mark.usefixtures("system")
def test_equal_trust_in_all_libraries_is_ok(tmp_path: Path) -> None:
    own = private(tmp_path / "own")
    found = looked({}, tmp_path / "own", trusting(PUBLIC, own), trusting(PUBLIC, own))
    assert told(found) == [("ok", "roots")]
    assert "local roots trusted by all libraries: 1" in found[0].text
    assert told(looked({}, tmp_path / "nothing", trusting(PUBLIC))) == [("ok", "roots")]


@pytest.mark.usefixtures("system")
def test_a_local_root_that_only_some_libraries_trust_is_reported(tmp_path: Path) -> None:
    own = private(tmp_path / "own")
    (tmp_path / "own" / "readme.pem").write_text("no certificate")
    found = only(looked({}, tmp_path / "own", trusting(PUBLIC, own), trusting(PUBLIC)), "roots")
    assert (found.level, "a library of 1 does not trust" in found.text) == ("warn", True)
    assert str(own) in found.text
    assert "SSL_CERT_FILE=" in found.fix


def test_system_roots_count_for_libraries_that_ask_the_system(tmp_path: Path, system: Path) -> None:
    own = private(tmp_path / "own")
    system.write_bytes(PUBLIC.read_bytes() + own.read_bytes())
    asking, own_ones = trusting(PUBLIC, by_system=True), trusting(PUBLIC)
    assert told(looked({}, tmp_path / "own", asking)) == [("ok", "roots")]
    assert told(looked({}, tmp_path / "own", own_ones)) == [("warn", "roots")]


@pytest.mark.usefixtures("system")
def test_roots_in_a_folder_of_hashed_certificates_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = private(tmp_path / "own")
    hashed = tmp_path / "hashed"
    hashed.mkdir()
    (hashed / "0123abcd.0").write_bytes(own.read_bytes())
    monkeypatch.setenv("SSL_CERT_DIR", str(hashed))
    assert told(looked({}, tmp_path / "own", trusting(by_system=True))) == [("ok", "roots")]


def test_a_variable_naming_a_file_without_certificates_is_reported(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.pem", tmp_path / "text.pem"):
        (tmp_path / "text.pem").write_text("hello")
        found = only(looked({"SSL_CERT_FILE": str(path)}, tmp_path, trusting(PUBLIC)), "roots")
        assert (found.level, str(path) in found.text) == ("fail", True)


@pytest.mark.usefixtures("system")
def test_a_variable_naming_only_local_roots_is_reported(tmp_path: Path) -> None:
    own = private(tmp_path / "own")
    found = looked({"SSL_CERT_FILE": str(own)}, tmp_path / "nothing", trusting(own))
    assert told(found) == [("warn", "roots"), ("ok", "roots")]
    assert "public services are not trusted" in found[0].text


def test_a_library_that_trusts_nothing_is_reported_and_a_missing_one_is_not(
    tmp_path: Path, system: Path
) -> None:
    def missing() -> ssl.SSLContext:
        raise ModuleNotFoundError(name="httpx")

    system.write_text("")
    found = looked({}, tmp_path, trusting(), TlsLibrary("not there", missing))
    assert told(found) == [("fail", "roots")]
    assert "ca-certificates" in found[0].fix
