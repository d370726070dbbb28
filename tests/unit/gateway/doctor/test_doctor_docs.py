"""The page of findings matches the doctor's messages."""

import ast

from scripts.doctor_docs import PAGE, ROOT, SOURCES, page


def test_the_page_matches_the_sources() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert written == page(written), "run: python -m scripts.doctor_docs"
    assert "privacy mode is on" in written


def test_every_module_with_findings_is_on_the_page() -> None:
    folders = ("gateway/operate/doctor", "platforms", "agent")
    files = {each for folder in folders for each in (ROOT / folder).rglob("*.py")}
    finding = {str(each.relative_to(ROOT)) for each in files if _finds(each.read_text())}
    assert finding - {"gateway/operate/doctor/fixes.py"} == set(SOURCES.values())


def _finds(source: str) -> bool:
    if "sessions.values.finding" not in source:
        return False
    calls = (each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Call))
    names = {each.func.id for each in calls if isinstance(each.func, ast.Name)}
    return bool(names & {"warn", "fail"})
