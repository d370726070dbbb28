// Draws a part of LaTeX as MathML: fractions, roots, scripts, sums with limits, Greek letters, operators,
// matrices and cases. A formula with anything else is not drawn; the caller then shows its source.
//
// Nodes are made one by one, with text nodes alone: no HTML comes from the formula.

const SPACE = "http://www.w3.org/1998/Math/MathML";
const DEEPEST = 40;
const LONGEST = 3_000;
const TOKEN = /\\[A-Za-z]+|\\[^A-Za-z]|\d+(?:\.\d+)?|\s+|[^\s\\]/gu;

const words = (text) => text.trim().split(/\s+/);
const pairs = (text) => new Map(words(text).map((each) => each.split("=")));

const LETTERS = pairs(`alpha=α beta=β gamma=γ delta=δ epsilon=ϵ varepsilon=ε zeta=ζ eta=η theta=θ vartheta=ϑ iota=ι
  kappa=κ lambda=λ mu=μ nu=ν xi=ξ pi=π varpi=ϖ rho=ρ varrho=ϱ sigma=σ varsigma=ς tau=τ upsilon=υ phi=ϕ varphi=φ
  chi=χ psi=ψ omega=ω Gamma=Γ Delta=Δ Theta=Θ Lambda=Λ Xi=Ξ Pi=Π Sigma=Σ Upsilon=Υ Phi=Φ Psi=Ψ Omega=Ω
  infty=∞ partial=∂ nabla=∇ emptyset=∅ varnothing=∅ hbar=ℏ ell=ℓ Re=ℜ Im=ℑ aleph=ℵ imath=ı jmath=ȷ top=⊤ bot=⊥
  ldots=… dots=… cdots=⋯ vdots=⋮ ddots=⋱ degree=° angle=∠`);
const OPERATORS = pairs(`cdot=⋅ times=× div=÷ pm=± mp=∓ ast=∗ star=⋆ circ=∘ bullet=∙ oplus=⊕ otimes=⊗ le=≤ leq=≤ ge=≥ geq=≥ ne=≠
  neq=≠ ll=≪ gg=≫ approx=≈ equiv=≡ sim=∼ simeq=≃ cong=≅ propto=∝ to=→ rightarrow=→ leftarrow=← gets=← leftrightarrow=↔
  Rightarrow=⇒ Leftarrow=⇐ Leftrightarrow=⇔ iff=⟺ implies=⟹ mapsto=↦ in=∈ notin=∉ ni=∋ subset=⊂ subseteq=⊆ supset=⊃
  supseteq=⊇ cup=∪ cap=∩ setminus=∖ forall=∀ exists=∃ neg=¬ lnot=¬ land=∧ wedge=∧ lor=∨ vee=∨ mid=∣ parallel=∥ perp=⊥
  prime=′ vdash=⊢ models=⊨ colon=: langle=⟨ rangle=⟩ lfloor=⌊ rfloor=⌋ lceil=⌈ rceil=⌉ lbrace={ rbrace=} vert=| lvert=|
  rvert=| Vert=‖ lVert=‖ rVert=‖ uparrow=↑ downarrow=↓ {={ }=} |=‖ %=% $=$ #=# &=& _=_`);
const LARGE = pairs("sum=∑ prod=∏ coprod=∐ bigcup=⋃ bigcap=⋂ bigoplus=⨁ bigotimes=⨂ bigvee=⋁ bigwedge=⋀");
const INTEGRALS = pairs("int=∫ iint=∬ iiint=∭ oint=∮");
const FUNCTIONS = new Set(words("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp det dim ker deg gcd arg hom Pr mod"));
const LIMITS = new Set(words("lim limsup liminf max min sup inf argmax argmin"));
const ACCENTS = pairs("hat=^ widehat=^ bar=¯ overline=‾ vec=→ tilde=~ widetilde=~ dot=˙ ddot=¨");
const GAPS = pairs(",=0.17em :=0.22em >=0.22em ;=0.28em !=-0.17em quad=1em qquad=2em");
const IGNORED = new Set(words("displaystyle textstyle limits nolimits big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr"));
const WORDS = new Set(words("text textrm textbf textit mathrm operatorname"));
const FENCES = new Map([
  ["matrix", ["", ""]], ["pmatrix", ["(", ")"]], ["bmatrix", ["[", "]"]], ["Bmatrix", ["{", "}"]],
  ["vmatrix", ["|", "|"]], ["Vmatrix", ["‖", "‖"]], ["cases", ["{", ""]], ["aligned", ["", ""]],
  ["align", ["", ""]], ["align*", ["", ""]], ["gather", ["", ""]], ["gather*", ["", ""]],
  ["equation", ["", ""]], ["equation*", ["", ""]], ["array", ["", ""]],
]);
const DOUBLE = pairs("C=ℂ H=ℍ N=ℕ P=ℙ Q=ℚ R=ℝ Z=ℤ");
const SCRIPT = pairs("B=ℬ E=ℰ F=ℱ H=ℋ I=ℐ L=ℒ M=ℳ R=ℛ e=ℯ g=ℊ o=ℴ");
const ALPHABETS = { mathbf: [0x1d400, 0x1d41a, new Map()], boldsymbol: [0x1d400, 0x1d41a, new Map()], mathbb: [0x1d538, 0x1d552, DOUBLE], mathcal: [0x1d49c, 0x1d4b6, SCRIPT] };

class NotDrawn extends Error {}

/** Return a formula as a node, or null if it cannot be drawn; `source` is the formula with its delimiters. */
export function renderFormula(source, display) {
  if (source.length > LONGEST) return null;
  try {
    const row = new Formula(withoutDelimiters(source)).read();
    const annotation = node("annotation", source);
    annotation.setAttribute("encoding", "application/x-tex");
    const math = node("math", node("semantics", row, annotation));
    math.setAttribute("dir", "ltr");
    if (display) math.setAttribute("display", "block");
    return math;
  } catch (error) {
    if (error instanceof NotDrawn) return null;
    throw error;
  }
}

function withoutDelimiters(source) {
  const text = source.trim().replace(/[ .,]+$/, "");
  const found = /^(?:\$\$(.+)\$\$|\$(.+)\$|\\\((.+)\\\)|\\\[(.+)\\\])$/s.exec(text);
  if (found) return found.slice(1).find((each) => each !== undefined);
  if (text.startsWith("\\begin{")) return text;
  throw new NotDrawn(); // its end is missing
}

function node(name, ...children) {
  const made = document.createElementNS(SPACE, name);
  made.append(...children);
  return made;
}

function operator(sign, attributes = {}) {
  const made = node("mo", sign);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** Return one node for several. */
function joined(nodes) {
  return nodes.length === 1 ? nodes[0] : node("mrow", ...nodes);
}

class Formula {
  #tokens;
  #at = 0;
  #depth = 0;

  constructor(tex) {
    this.#tokens = tex.match(TOKEN) ?? [];
  }

  read() {
    const row = this.#row(() => false);
    if (this.#at < this.#tokens.length || !row.length) throw new NotDrawn();
    return joined(row);
  }

  #peek() {
    while (/^\s/.test(this.#tokens[this.#at] ?? "")) this.#at += 1;
    return this.#tokens[this.#at];
  }

  #next() {
    const token = this.#peek();
    if (token === undefined) throw new NotDrawn();
    this.#at += 1;
    return token;
  }

  #expect(token) {
    if (this.#next() !== token) throw new NotDrawn();
  }

  /** Read nodes up to a token that `ends` accepts. */
  #row(ends) {
    this.#depth += 1;
    if (this.#depth > DEEPEST) throw new NotDrawn();
    const nodes = [];
    for (let token = this.#peek(); token !== undefined && !ends(token); token = this.#peek()) {
      if (token === "}" || token === "&" || token === "\\\\" || token === "\\right" || token === "\\end") break;
      const made = this.#withScripts();
      if (made) nodes.push(made);
      if (FUNCTIONS.has(token.slice(1)) && this.#beginsWord()) nodes.push(gap("0.17em"));
    }
    this.#depth -= 1;
    return nodes;
  }

  /** True if a letter, a number or a name comes next. */
  #beginsWord() {
    const token = this.#peek() ?? "";
    return /^[\p{L}\d]/u.test(token) || LETTERS.has(token.slice(1)) || FUNCTIONS.has(token.slice(1)) || token === "\\frac";
  }

  /** Read a node with the subscript and the superscript behind it. */
  #withScripts() {
    const { base, limits } = this.#base();
    let below = null;
    let above = null;
    for (let token = this.#peek(); ["^", "_", "'"].includes(token) || IGNORED.has(token?.slice(1)); token = this.#peek()) {
      this.#at += 1;
      if (token === "_" && !below) below = this.#argument();
      else if (token === "^" && !above) above = this.#argument();
      else if (token === "'") above = above ? node("mrow", above, operator("′")) : operator("′");
      else if (token === "^" || token === "_") throw new NotDrawn();
    }
    if (!below && !above) return base;
    if (!base) throw new NotDrawn();
    const [under, over, both] = limits ? ["munder", "mover", "munderover"] : ["msub", "msup", "msubsup"];
    if (below && above) return node(both, base, below, above);
    return below ? node(under, base, below) : node(over, base, above);
  }

  /** Read an argument: a group in braces, or a single sign. */
  #argument() {
    const token = this.#peek();
    if (token === "{") return this.#group();
    if (/^\d./.test(token ?? "")) this.#tokens.splice(this.#at, 1, ...token);
    const { base } = this.#base();
    if (!base) throw new NotDrawn();
    return base;
  }

  #group() {
    this.#expect("{");
    const row = this.#row(() => false);
    this.#expect("}");
    return joined(row);
  }

  /** Read the words in braces as they were typed. */
  #words() {
    this.#expect("{");
    let text = "";
    for (let token = this.#tokens[this.#at]; token !== "}"; token = this.#tokens[this.#at]) {
      if (token === undefined || token === "{" || (token.startsWith("\\") && token !== "\\ ")) throw new NotDrawn();
      text += token === "\\ " ? " " : token;
      this.#at += 1;
    }
    this.#at += 1;
    return text;
  }

  #base() {
    const token = this.#peek();
    if (token === "{") return { base: this.#group() };
    if (token === "^" || token === "_") return { base: node("mrow") };
    this.#next();
    if (token.startsWith("\\")) return this.#command(token.slice(1));
    if (/^\d/.test(token)) return { base: node("mn", token) };
    if (/^\p{L}/u.test(token)) return { base: node("mi", token) };
    if (token === "~") return { base: gap("0.3em") };
    if (token === "-") return { base: operator("−") };
    if (token === "%" || token === "#" || token === "$") throw new NotDrawn();
    if (token === "|") return { base: operator(token, { stretchy: "false", lspace: "0", rspace: "0" }) };
    return { base: operator(token, /[()[\]]/.test(token) ? { stretchy: "false" } : {}) };
  }

  #command(name) {
    if (LETTERS.has(name)) return { base: node("mi", LETTERS.get(name)) };
    if (OPERATORS.has(name)) return { base: operator(OPERATORS.get(name), { stretchy: "false" }) };
    if (LARGE.has(name)) return { base: operator(LARGE.get(name)), limits: true };
    if (INTEGRALS.has(name)) return { base: operator(INTEGRALS.get(name)) };
    if (FUNCTIONS.has(name)) return { base: functionName(name) };
    if (LIMITS.has(name)) return { base: operator(name, { movablelimits: "true", form: "prefix" }), limits: true };
    if (GAPS.has(name)) return { base: gap(GAPS.get(name)) };
    if (name === " ") return { base: gap("0.3em") };
    if (IGNORED.has(name)) return { base: null };
    if (WORDS.has(name)) return { base: name === "operatorname" ? functionName(this.#words()) : node("mtext", this.#words().replace(/ /g, "\u00a0")) };
    if (Object.hasOwn(ALPHABETS, name)) return { base: this.#alphabet(ALPHABETS[name]) };
    if (ACCENTS.has(name)) return { base: accented(this.#argument(), ACCENTS.get(name), name) };
    switch (name) {
      case "frac":
      case "dfrac":
      case "tfrac":
        return { base: node("mfrac", this.#argument(), this.#argument()) };
      case "binom": {
        const inside = node("mfrac", this.#argument(), this.#argument());
        inside.setAttribute("linethickness", "0");
        return { base: node("mrow", operator("("), inside, operator(")")) };
      }
      case "sqrt":
        return { base: this.#root() };
      case "underline": {
        const line = node("munder", this.#argument(), operator("_", { stretchy: "true" }));
        return { base: line };
      }
      case "not": {
        const { base } = this.#base();
        if (base?.localName !== "mo") throw new NotDrawn();
        base.textContent = `${base.textContent}\u0338`;
        return { base };
      }
      case "left":
        return { base: this.#fenced() };
      case "begin":
        return { base: this.#environment() };
      default:
        throw new NotDrawn();
    }
  }

  #root() {
    if (this.#peek() !== "[") return node("msqrt", this.#argument());
    this.#next();
    const degree = joined(this.#row((token) => token === "]"));
    this.#expect("]");
    return node("mroot", this.#argument(), degree);
  }

  #alphabet([upper, lower, own]) {
    const text = this.#words();
    if (!/^[A-Za-z]+$/.test(text)) throw new NotDrawn();
    const letters = [...text].map((letter) => {
      if (own.has(letter)) return own.get(letter);
      const code = letter.codePointAt(0);
      return String.fromCodePoint(code >= 97 ? lower + code - 97 : upper + code - 65);
    });
    return joined(letters.map((letter) => node("mi", letter)));
  }

  #fenced() {
    const open = this.#fence();
    const row = this.#row(() => false);
    this.#expect("\\right");
    return node("mrow", ...open, ...row, ...this.#fence());
  }

  #fence() {
    const token = this.#next();
    if (token === ".") return [];
    const sign = token.startsWith("\\") ? OPERATORS.get(token.slice(1)) : token;
    if (!sign || !/^[()[\]{}|/‖⟨⟩⌊⌋⌈⌉]$/.test(sign)) throw new NotDrawn();
    return [operator(sign, { fence: "true", stretchy: "true" })];
  }

  #environment() {
    const name = this.#words();
    const fences = FENCES.get(name);
    if (!fences) throw new NotDrawn();
    if (name === "array") this.#words(); // its columns
    const rows = [[]];
    for (;;) {
      rows.at(-1).push(node("mtd", ...this.#row(() => false)));
      const token = this.#next();
      if (token === "\\\\") rows.push([]);
      else if (token === "\\end") break;
      else if (token !== "&") throw new NotDrawn();
    }
    if (this.#words() !== name) throw new NotDrawn();
    if (rows.length > 1 && rows.at(-1).length === 1 && !rows.at(-1)[0].hasChildNodes()) rows.pop();
    const table = node("mtable", ...rows.map((cells) => node("mtr", ...cells)));
    table.setAttribute("class", name.replace("*", ""));
    const signs = fences.map((sign) => (sign ? [operator(sign, { fence: "true", stretchy: "true" })] : []));
    return node("mrow", ...signs[0], table, ...signs[1]);
  }
}

function gap(width) {
  const made = node("mspace");
  made.setAttribute("width", width);
  return made;
}

function functionName(name) {
  const made = node("mi", name);
  if (name.length === 1) made.setAttribute("mathvariant", "normal");
  return made;
}

function accented(base, sign, name) {
  const wide = /^(?:wide|over)/.test(name);
  const made = node("mover", base, operator(sign, { stretchy: String(wide) }));
  made.setAttribute("accent", "true");
  return made;
}
