"""Formulas on the page: MathML where LaTeX is understood, else the source."""
# ruff: noqa: RUF001 - signs of mathematics

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.e2e.page_kit import staged
from tests.faults.markdown_causes import formulas
from tests.faults.markdown_texts import ANSWERS

pytestmark = pytest.mark.asyncio(loop_scope="session")

DRAW = """async (sources) => {
    const { renderFormula } = await import("/web/static/math.js");
    return sources.map((source) => {
        const node = renderFormula(source, source.startsWith("$$"));
        node?.querySelector("annotation").remove();
        return node?.querySelector("semantics").innerHTML.replaceAll(/ (?:stretchy|fence|form|movablelimits|lspace|rspace)="[^"]*"/g, "") ?? null;
    });
}"""

SOURCES = """async (sources) => {
    const { renderFormula } = await import("/web/static/math.js");
    return sources.map((source) => renderFormula(source, false)?.querySelector("annotation").textContent ?? null);
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def sheet(browser: Browser) -> AsyncIterator[Page]:
    """A page of the same origin, in which formulas are drawn."""
    async with staged() as stage, await browser.new_context() as context:
        page = await context.new_page()
        await page.goto(stage.url)
        yield page


@pytest.mark.parametrize(
    ("tex", "drawn"),
    [
        ("x", "<mi>x</mi>"),
        ("x^2", "<msup><mi>x</mi><mn>2</mn></msup>"),
        ("a_1^{n+1}", "<msubsup><mi>a</mi><mn>1</mn><mrow><mi>n</mi><mo>+</mo><mn>1</mn></mrow></msubsup>"),
        ("f''", "<msup><mi>f</mi><mrow><mo>′</mo><mo>′</mo></mrow></msup>"),
        ("{}^2x", "<mrow><msup><mrow></mrow><mn>2</mn></msup><mi>x</mi></mrow>"),
        (r"\frac{a}{2}", "<mfrac><mi>a</mi><mn>2</mn></mfrac>"),
        (r"\frac12", "<mfrac><mn>1</mn><mn>2</mn></mfrac>"),
        ("x^12", "<mrow><msup><mi>x</mi><mn>1</mn></msup><mn>2</mn></mrow>"),
        ("|x|", "<mrow><mo>|</mo><mi>x</mi><mo>|</mo></mrow>"),
        (r"\sqrt[3]{x}", "<mroot><mi>x</mi><mn>3</mn></mroot>"),
        (r"\sqrt 2", "<msqrt><mn>2</mn></msqrt>"),
        (r"\sqrt{a b}", "<msqrt><mrow><mi>a</mi><mi>b</mi></mrow></msqrt>"),
        (r"\alpha \le \Omega", "<mrow><mi>α</mi><mo>≤</mo><mi>Ω</mi></mrow>"),
        (r"\sum_{k=1}^n k", "<mrow><munderover><mo>∑</mo><mrow><mi>k</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><mi>k</mi></mrow>"),
        (r"\sum\limits_k k", "<mrow><munder><mo>∑</mo><mi>k</mi></munder><mi>k</mi></mrow>"),
        (r"\int_0^1 x\,dx", '<mrow><msubsup><mo>∫</mo><mn>0</mn><mn>1</mn></msubsup><mi>x</mi><mspace width="0.17em"></mspace><mi>d</mi><mi>x</mi></mrow>'),
        (r"\lim_{x \to 0} x", "<mrow><munder><mo>lim</mo><mrow><mi>x</mi><mo>→</mo><mn>0</mn></mrow></munder><mi>x</mi></mrow>"),
        (r"\sin x", '<mrow><mi>sin</mi><mspace width="0.17em"></mspace><mi>x</mi></mrow>'),
        (r"\mathbb{R}^n", "<msup><mi>ℝ</mi><mi>n</mi></msup>"),
        (r"\mathbf{v}", "<mi>𝐯</mi>"),
        (r"\vec{v}", '<mover accent="true"><mi>v</mi><mo>→</mo></mover>'),
        (r"\text{if } x", "<mrow><mtext>if&nbsp;</mtext><mi>x</mi></mrow>"),
        (r"\left( x \right)", "<mrow><mo>(</mo><mi>x</mi><mo>)</mo></mrow>"),
        (r"\left. x \right|", "<mrow><mi>x</mi><mo>|</mo></mrow>"),
        (r"\binom{n}{k}", '<mrow><mo>(</mo><mfrac linethickness="0"><mi>n</mi><mi>k</mi></mfrac><mo>)</mo></mrow>'),
        (r"\begin{pmatrix} a & b \\ c & d \\ \end{pmatrix}", '<mrow><mo>(</mo><mtable class="pmatrix"><mtr><mtd><mi>a</mi></mtd><mtd><mi>b</mi></mtd></mtr><mtr><mtd><mi>c</mi></mtd><mtd><mi>d</mi></mtd></mtr></mtable><mo>)</mo></mrow>'),
        (r"\not\in", "<mo>∉</mo>"),
        ("a < b", "<mrow><mi>a</mi><mo>&lt;</mo><mi>b</mi></mrow>"),
    ],
)  # fmt: skip
async def test_a_formula_is_drawn(sheet: Page, tex: str, drawn: str | None) -> None:
    assert await sheet.evaluate(DRAW, [f"${tex}$", rf"\({tex}\)", rf"\[{tex}\]"]) == [drawn] * 3


@pytest.mark.parametrize(
    "tex",
    [
        r"\unknown{x}", "x^", "^^", "{x", "x}", r"\frac{a}", r"\left( x", r"\begin{tikzpicture}\end{tikzpicture}", r"\begin{cases} a",
        r"a \\ b", "a & b", "x_1_2", r"\text{a{b}}", r"\href{javascript:x}{y}", r"\mathbf{\alpha}", "a % b", "", "{" * 60 + "x" + "}" * 60,
        "x" * 4_000, r"\sqrt[3{x}", r"\right)", r"\end{cases}", r"\not x",
    ],
)  # fmt: skip
async def test_a_formula_that_is_not_understood_is_not_drawn(sheet: Page, tex: str) -> None:
    assert await sheet.evaluate(DRAW, [f"$${tex}$$"]) == [None]


async def test_every_beginning_of_a_formula_is_drawn_or_refused(sheet: Page) -> None:
    found = [f"${tex}$" for md in ANSWERS.values() for tex in formulas(md)]
    assert len(found) > 20
    assert await sheet.evaluate(SOURCES, found) == found
    parts = [f"${tex[1:end]}$" for tex in found for end in range(2, len(tex))]
    shown = await sheet.evaluate(SOURCES, parts)
    assert all(text in {None, part} for text, part in zip(shown, parts, strict=True))


async def test_a_formula_makes_no_element_but_mathml(sheet: Page) -> None:
    source = r"$x<img src=x onerror=alert(1)>\text{<script>alert(1)</script>}$"
    names = await sheet.evaluate(
        """async (source) => {
            const { renderFormula } = await import("/web/static/math.js");
            const node = renderFormula(source, false);
            return [...node.querySelectorAll("*")].map((each) => each.namespaceURI);
        }""",
        source,
    )
    assert set(names) == {"http://www.w3.org/1998/Math/MathML"}
