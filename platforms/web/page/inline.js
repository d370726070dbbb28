// Renders inline Markdown: emphasis, code, links. Returns nodes and strings, never HTML.
//
// One pass. Marks that may open something (`*`, `_`, `~~`, `[`, `<b>`) are frames on a stack, and content
// after a mark goes into the top frame. A closing mark folds the frames down to its partner into an
// element; frames without a partner become text again.

import { renderFormula } from "./math.js";
import { addressOf, noteAt } from "./references.js";

const PLAIN = /[^\\`*_~|[\]!<&\n$hH]+/y;
const URL_TEXT = /https?:\/\/[^\s<>`|]+/iy;
const ANGLE = /<(?:(https?:\/\/[^\s<>]+|mailto:[^\s<>]+)|([\w.+-]+@[\w-]+(?:\.[\w-]+)+)|(br ?\/?))>/iy;
const ENTITY = /&(?:([A-Za-z]{2,8}\d{0,2})|#(\d{1,7})|#x([\da-f]{1,6}));/iy;
const NAMED = {
  amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", reg: "®", trade: "™", hellip: "…", mdash: "—", ndash: "–",
  lsquo: "‘", rsquo: "’", ldquo: "“", rdquo: "”", laquo: "«", raquo: "»", bull: "•", middot: "·", deg: "°", plusmn: "±", times: "×", divide: "÷",
  le: "≤", ge: "≥", ne: "≠", asymp: "≈", infin: "∞", micro: "µ", larr: "←", rarr: "→", uarr: "↑", darr: "↓", harr: "↔", rArr: "⇒",
  euro: "€", pound: "£", yen: "¥", cent: "¢", sect: "§", para: "¶", frac12: "½", frac14: "¼", frac34: "¾", sup2: "²", sup3: "³", pi: "π",
};
const DUNDER = /__(?:init|main|name|file|str|repr|call|new|del|len|iter|next|enter|exit|get|set|add|sub|mul|eq|lt|gt|hash|bool|dict|class|doc|all|slots|version|future|pycache|getattr|setattr|getitem|setitem|contains|import|path|dir|post_init|init_subclass|annotations|module|qualname|tests|aenter|aexit|await|anext|aiter)__(?![\p{L}\p{N}_])/uy;
const DOLLARS = /\$(?=[^\s$])([^$`\n]{0,300}?[^\s$`\\])\$(?![\w$])|\$\$([^$`]{1,1000})\$\$(?![\w$])/y;
const TAG = /<(\/?)(b|strong|i|em|u|ins|s|del|strike|sub|sup|code|kbd)>|<(a)(?=\s)(?=[^<>]{0,2000}?\shref\s?=\s?(?:"([^"<>]*)"|'([^'<>]*)'|([^\s"'<>]+)))[^<>]{0,2000}>|<(\/)a>/iy;
const TAG_OR_CODE = /\\.|(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)|<(\/?)(b|strong|i|em|u|ins|s|del|strike|sub|sup|code|kbd)>|<(\/?)a(?:>|\s[^<>]{0,2000}>)/gis;
const ELEMENTS = { b: "strong", strong: "strong", i: "em", em: "em", u: "u", ins: "u", s: "del", del: "del", strike: "del", sub: "sub", sup: "sup" };
const BRACKETED_TEX = /[\\^_={}]|^(?!.*\p{L}{2})(?=.*\p{L}).*[-+*/<>|()!]|[+*<>\u00d7\u00b7\u00f7≤≥≈≠∈→√∑∫]/su; // else the brackets are only escaped
const ENVIRONMENT = /\\begin\{([A-Za-z]{1,20}\*?)\}[^]{0,2000}?\\end\{\1\}/y;
const TEX = /[\\^_={}+*/<>]|^[A-Za-z]$/; // other text between dollars is an amount
const PUNCTUATION = /[\p{P}\p{S}]/u;
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}]/u;
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const TARGET = /\(\s{0,20}(?:<([^<>\n]{0,2000})>|((?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.)*\))*))(?:\s{1,20}(?:"((?:[^"\\]|\\.){0,500})"|'((?:[^'\\]|\\.){0,500})'))?\s{0,20}\)/y;
const MOST_FRAMES = 60; // nesting depth of marks; deeper ones stay text
const LONGEST_TARGET = 4_000;
const SCHEMES = new Set(["http:", "https:", "mailto:"]);

/** Render a piece of inline Markdown; `references` holds the definitions of the whole text. */
export function renderInline(text, references = null) {
  return new Line(text, references).render();
}

/** Return the address if its scheme is safe, else null. */
export function safeUrl(address) {
  try {
    const url = new URL(address);
    return SCHEMES.has(url.protocol) ? url.href : null;
  } catch {
    return null; // relative or malformed
  }
}

class Line {
  #text;
  #at = 0;
  #frames = [{ mark: "", count: 0, children: [] }];
  #brackets = []; // frames of "[" that may still become a link
  #unclosed = new Set(); // lengths of backtick runs, and starts of formulas, without a partner
  #references;
  #pairs = null; // start of the other tag of each pair of HTML tags

  constructor(text, references) {
    this.#text = text;
    this.#references = references;
  }

  render() {
    while (this.#at < this.#text.length) this.#step();
    this.#fold(0);
    return this.#frames[0].children;
  }

  #step() {
    const plain = this.#match(PLAIN);
    if (plain) {
      this.#add(plain[0]);
      return;
    }
    const letter = this.#text[this.#at];
    if (letter === "\\") this.#escape();
    else if (letter === "`") this.#code();
    else if (letter === "*" || letter === "_" || letter === "~" || letter === "|") this.#emphasis(letter);
    else if (letter === "[") this.#bracket();
    else if (letter === "!") this.#image();
    else if (letter === "]") this.#closeBracket();
    else if (letter === "<") this.#angle();
    else if (letter === "&") this.#entity();
    else if (letter === "\n") this.#newline();
    else if (letter === "$") this.#dollars();
    else this.#address();
  }

  #match(pattern) {
    pattern.lastIndex = this.#at;
    const match = pattern.exec(this.#text);
    if (match) this.#at = pattern.lastIndex;
    return match;
  }

  /** Append a string or node to the top frame. */
  #add(piece) {
    const { children } = this.#frames.at(-1);
    if (typeof piece === "string" && typeof children.at(-1) === "string") children[children.length - 1] += piece;
    else children.push(piece);
  }

  #literal(length) {
    this.#add(this.#text.slice(this.#at, this.#at + length));
    this.#at += length;
  }

  #escape() {
    const next = this.#text[this.#at + 1] ?? "";
    if (next === "\n") {
      this.#at += 1;
      this.#newline();
    } else if (((next === "(" || next === "[") && this.#bracketed(next)) || (next === "b" && this.#environment())) {
      // It is a formula.
    } else if (ESCAPABLE.test(next)) {
      this.#at += 1;
      this.#literal(1);
    } else {
      this.#literal(1);
    }
  }

  /** Add a formula. One that cannot be drawn stays as it was typed: its backslashes are no Markdown. */
  #formula(end) {
    const source = this.#text.slice(this.#at, end);
    let node = renderFormula(source, source.startsWith("$$") || source.startsWith("\\["));
    if (!node) {
      node = document.createElement("code");
      node.className = "math";
      node.dir = "ltr";
      node.textContent = source;
    }
    this.#add(node);
    this.#at = end;
  }

  /** Add the formula between a backslash with a bracket and its partner; return false if there is none. */
  #bracketed(opening) {
    if (this.#unclosed.has(opening)) return false;
    const end = this.#text.indexOf(opening === "(" ? "\\)" : "\\]", this.#at + 2);
    if (end < 0) this.#unclosed.add(opening);
    if (end < 0 || !this.#isFormula(this.#text.slice(this.#at + 2, end).trim(), opening, end + 2)) return false;
    this.#formula(end + 2);
    return true;
  }

  /** Add the LaTeX environment that begins here; return false if there is none. */
  #environment() {
    ENVIRONMENT.lastIndex = this.#at;
    if (!ENVIRONMENT.test(this.#text)) return false;
    this.#formula(ENVIRONMENT.lastIndex);
    return true;
  }

  /** Return false for text such as `\[1\]`, whose brackets are only escaped. */
  #isFormula(inside, opening, end) {
    if (!inside || (opening === "[" && this.#text[end] === "(")) return false;
    const before = this.#text.slice(this.#text.lastIndexOf("\n", this.#at - 1) + 1, this.#at);
    const alone = this.#at === 0 || !before.trim();
    return (alone && /^[ .,]*(?:\n|$)/.test(this.#text.slice(end, end + 9))) || BRACKETED_TEX.test(inside);
  }

  #dollars() {
    DOLLARS.lastIndex = this.#at;
    const match = DOLLARS.exec(this.#text);
    if (match && TEX.test((match[1] ?? match[2]).trim())) this.#formula(DOLLARS.lastIndex);
    else this.#literal(match || this.#text[this.#at + 1] !== "$" ? 1 : 2);
  }

  #newline() {
    this.#at += 1;
    this.#add(document.createElement("br"));
  }

  #code() {
    const [run] = /^`+/.exec(this.#text.slice(this.#at, this.#at + 200));
    const inside = this.#at + run.length;
    if (!this.#unclosed.has(run.length)) {
      const runs = /`+/g;
      runs.lastIndex = inside;
      for (let match = runs.exec(this.#text); match; match = runs.exec(this.#text)) {
        if (match[0].length !== run.length) continue;
        const node = document.createElement("code");
        node.textContent = this.#text.slice(inside, match.index).replace(/\n/g, " ").replace(/^ (.*\S.*) $/, "$1");
        this.#add(node);
        this.#at = runs.lastIndex;
        return;
      }
      this.#unclosed.add(run.length);
    }
    this.#literal(run.length);
  }

  #emphasis(mark) {
    let end = this.#at + 1;
    while (this.#text[end] === mark) end += 1;
    const count = end - this.#at;
    if (mark === "_" && this.#dunder()) return;
    const before = this.#at === 0 ? " " : this.#text[this.#at - 1];
    const after = this.#text.at(end) ?? " ";
    let { opens, closes } = flanks(before, after);
    if (mark === "_") {
      const inWord = opens && closes; // snake_case is not emphasis
      opens = opens && (!inWord || PUNCTUATION.test(before));
      closes = closes && (!inWord || PUNCTUATION.test(after));
    }
    if (mark === "*" && /\d/.test(before) && /\d/.test(after)) opens = closes = false; // 2*3*4 is a product
    if ((mark === "~" || mark === "|") && count !== 2) opens = closes = false;
    const left = closes ? this.#close(mark, count, opens) : count;
    this.#at = end - left;
    if (!left) return;
    if (opens) this.#open(mark, left);
    else this.#literal(left);
  }

  /** Add a name such as __init__, which is not emphasis; return false if there is none. */
  #dunder() {
    if (/[\p{L}\p{N}]/u.test(this.#text[this.#at - 1] ?? "")) return false;
    const match = this.#match(DUNDER);
    if (match) this.#add(match[0]);
    return match !== null;
  }

  #open(mark, count) {
    if (this.#frames.length >= MOST_FRAMES) {
      this.#literal(mark.length === 1 ? count : mark.length);
      return;
    }
    const frame = { mark, count, children: [] };
    this.#frames.push(frame);
    this.#at += mark[0] === "[" || mark[0] === "!" ? mark.length : count;
    frame.start = this.#at;
    if (mark.endsWith("[")) this.#brackets.push(frame);
  }

  /** Close as many marks as possible with a run; return the number of marks left over. */
  #close(mark, count, opens) {
    let left = count;
    const floor = this.#frames.findLastIndex((frame) => frame.tag); // no pair of marks crosses a tag
    while (left) {
      const index = this.#frames.findLastIndex(
        (frame) => frame.mark === mark && !(opens && (frame.count + left) % 3 === 0 && left % 3),
      );
      if (index < 1 || index < floor) break;
      this.#fold(index);
      const frame = this.#frames[index];
      const used = Math.min(2, frame.count, left);
      const node = mark === "|" ? spoiler() : document.createElement(mark === "~" ? "del" : used === 2 ? "strong" : "em");
      node.append(...frame.children);
      frame.children = [node];
      frame.count -= used;
      left -= used;
      if (!frame.count) this.#fold(index - 1);
    }
    return left;
  }

  /** Turn the frames above this one into text and append their content to it. */
  #fold(index) {
    const above = this.#frames.splice(index + 1);
    for (const frame of above) {
      if (frame.count) this.#add(frame.mark.length > 1 ? frame.mark : frame.mark.repeat(frame.count));
      frame.children.forEach((piece) => this.#add(piece));
      if (frame === this.#brackets.at(-1)) this.#brackets.pop();
    }
    if (above.length > 1) this.#brackets = this.#brackets.filter((frame) => this.#frames.includes(frame));
  }

  #bracket() {
    const note = noteAt(this.#text, this.#at, this.#references);
    if (note === null) {
      this.#open("[", 1);
      return;
    }
    const end = this.#at + note.length + 3;
    const isDefinition = this.#at === 0 && this.#text[end] === ":";
    const label = isDefinition ? `[${note}]` : document.createElement("sup");
    if (!isDefinition) label.textContent = `[${note}]`;
    this.#add(label);
    this.#at = end;
  }

  #image() {
    if (this.#text[this.#at + 1] === "[") this.#open("![", 1);
    else this.#literal(1);
  }

  #closeBracket() {
    const frame = this.#brackets.pop();
    const target = frame && (this.#target(this.#at + 1) ?? (this.#isCitation(frame) ? null : this.#reference(frame)));
    if (!target) {
      this.#literal(1);
      return;
    }
    const index = this.#frames.indexOf(frame);
    this.#fold(index);
    this.#frames.pop();
    this.#at = target.end;
    // Pictures from other hosts are not loaded: that would tell those hosts who reads this.
    if (frame.mark === "[") this.#brackets.length = 0; // links do not nest
    const href = this.#inLink() ? null : safeUrl(target.address);
    if (href) this.#add(link(href, namesAnotherHost(frame.children, href) ? [] : frame.children, target.title));
    else [...frame.children, ` (${target.address})`].forEach((piece) => this.#add(piece));
  }

  /** True for the inner brackets of `[[1]][1]` and `[[1]](address)`: the outer ones are the link. */
  #isCitation(frame) {
    return this.#text[frame.start - 2] === "[" && /^\]\][([]/.test(this.#text.slice(this.#at, this.#at + 3));
  }

  /** Return the target of a reference such as `[words][label]` or `[label]`, or null. */
  #reference(frame) {
    if (!this.#references?.addresses.size || frame.start === undefined) return null;
    const words = this.#text.slice(frame.start, this.#at);
    const second = /^\[((?:[^[\]\\]|\\.){0,999})\]/s.exec(this.#text.slice(this.#at + 1, this.#at + 1_003));
    const address = addressOf((second && second[1].trim()) || words, this.#references);
    if (address === undefined) return null;
    return { address: unescaped(address), title: "", end: this.#at + 1 + (second ? second[0].length : 0) };
  }

  #target(at) {
    if (this.#text[at] !== "(") return null;
    TARGET.lastIndex = at;
    const match = TARGET.exec(this.#text);
    if (!match || match[0].length > LONGEST_TARGET) return null;
    const address = (match[1] ?? match[2]).replace(/\\([!-/:-@[-`{-~])/g, "$1");
    return { address, title: match[3] ?? match[4] ?? "", end: TARGET.lastIndex };
  }

  #angle() {
    const match = this.#match(ANGLE);
    if (!match) this.#tag();
    else if (match[3]) this.#add(document.createElement("br"));
    else this.#addLink(match[1] ?? `mailto:${match[2]}`, match[1] ?? match[2]);
  }

  /** Read an HTML tag that has a partner; others are text. */
  #tag() {
    TAG.lastIndex = this.#at;
    const match = TAG.exec(this.#text);
    const partner = match ? this.#tagPairs().get(this.#at) : undefined;
    const frame = this.#frames.at(this.#frames.findLastIndex((each) => each.tag));
    const name = match && (match[2] ?? "a").toLowerCase();
    if (partner === undefined) this.#literal(1);
    else if (match[1] || match[7]) {
      if (frame.tag && frame.from === partner) this.#closeTag(frame, TAG.lastIndex);
      else this.#literal(1);
    } else if (name === "code" || name === "kbd") {
      const node = document.createElement(name);
      node.textContent = unescaped(this.#text.slice(TAG.lastIndex, partner)).replace(/\n/g, " ");
      if (node.textContent) this.#add(node);
      this.#at = this.#text.indexOf(">", partner) + 1;
    } else if (this.#frames.length >= MOST_FRAMES || (name === "a" && this.#inLink())) this.#literal(1);
    else {
      const address = match[4] ?? match[5] ?? match[6];
      this.#frames.push({ mark: match[0], count: 1, children: [], tag: name, from: this.#at, address });
      this.#at = TAG.lastIndex;
    }
  }

  #closeTag(frame, end) {
    this.#fold(this.#frames.indexOf(frame));
    this.#frames.pop();
    this.#at = end;
    const { children } = frame;
    if (frame.tag === "a") {
      const address = unescaped(frame.address).trim();
      const href = safeUrl(address);
      if (href) this.#add(link(href, namesAnotherHost(children, href) ? [] : children, ""));
      else [...children, ` (${address})`].forEach((piece) => this.#add(piece));
    } else if (children.length) {
      const node = document.createElement(ELEMENTS[frame.tag]);
      node.append(...children);
      this.#add(node);
    }
  }

  #inLink() {
    return this.#frames.some((frame) => frame.tag === "a");
  }

  /** Return the start of the closing tag for each opening one, and the reverse. */
  #tagPairs() {
    if (this.#pairs) return this.#pairs;
    this.#pairs = new Map();
    const opened = [];
    const counts = {};
    for (const match of this.#text.matchAll(TAG_OR_CODE)) {
      if (match[3] === undefined && match[4] === undefined) continue;
      const name = (match[3] ?? "a").toLowerCase();
      if (!(match[2] || match[4])) {
        if (name === "a" && counts.a) continue;
        opened.push([name, match.index]);
        counts[name] = (counts[name] ?? 0) + 1;
      } else if (counts[name]) {
        let other;
        do {
          other = opened.pop();
          counts[other[0]] -= 1;
        } while (other[0] !== name);
        this.#pairs.set(other[1], match.index).set(match.index, other[1]);
      }
    }
    return this.#pairs;
  }

  #entity() {
    ENTITY.lastIndex = this.#at;
    const match = ENTITY.exec(this.#text);
    if (!match || (match[1] && !Object.hasOwn(NAMED, match[1]))) {
      this.#literal(1);
      return;
    }
    this.#at = ENTITY.lastIndex;
    this.#add(character(...match));
  }

  #address() {
    const inWord = this.#at > 0 && /[\p{L}\p{N}_]/u.test(this.#text[this.#at - 1]);
    const match = inWord ? null : this.#match(URL_TEXT);
    if (!match) {
      this.#literal(1);
      return;
    }
    const address = withoutTail(match[0]);
    this.#at -= match[0].length - address.length;
    this.#addLink(address, address);
  }

  #addLink(address, text) {
    const href = safeUrl(address);
    this.#add(href ? link(href, [text], "") : text);
  }
}

/** Return the character of an entity; an unknown one stays as written. */
function character(whole, name, decimal, hexadecimal) {
  const number = decimal ? Number(decimal) : Number.parseInt(hexadecimal ?? "0", 16);
  const known = number > 0 && number <= 0x10ffff && !(number >= 0xd800 && number <= 0xdfff);
  return name ? NAMED[name.toLowerCase()] : known ? String.fromCodePoint(number) : whole;
}

function unescaped(text) {
  return text.replace(new RegExp(ENTITY.source, "gi"), character);
}

// A bare name such as `main.py` is a file, unless it ends as few files do.
const HOST = /(?:\w[\w+.-]*:\/\/|\/\/|\bwww\.)(?:[^\s/@]*@)?([^\s/?#:@]+)|^\s*((?:[\w-]+\.)+(?:com|org|net|edu|gov|mil|info|biz|bank|shop|dev|app|io|example|uk|de|fr|it|es|nl|ch|at|eu|us|ca|ru|cn|jp|in|br|au))(?::\d+)?(?:[/?#]\S*)?\s*$/gi;

/** Return whether the text of a link is an address at another host than the link's. */
function namesAnotherHost(children, href) {
  const text = children.map((child) => (typeof child === "string" ? child : child.textContent)).join("");
  const real = plainHost(new URL(href).hostname);
  return [...text.matchAll(HOST)].some((found) => plainHost(found[1] ?? found[2]) !== real);
}

function plainHost(host) {
  return host.toLowerCase().replace(/^www\./, "").replace(/[.…,;!)\]]+$/, "");
}

function link(href, children, title) {
  const node = document.createElement("a");
  node.href = href;
  node.target = "_blank";
  node.rel = "noopener noreferrer nofollow";
  node.title = title || href;
  node.append(...(children.length ? children : [href]));
  for (const inner of node.querySelectorAll("a")) inner.replaceWith(...inner.childNodes); // links do not nest
  return node;
}

/** Create an element whose words are seen once it is pointed at. */
function spoiler() {
  const node = document.createElement("span");
  node.className = "spoiler";
  node.tabIndex = 0;
  return node;
}

/** Return whether a run of marks can open, can close, or both. */
function flanks(before, after) {
  const spaceBefore = /\s/.test(before);
  const spaceAfter = /\s/.test(after);
  const signBefore = PUNCTUATION.test(before);
  const signAfter = PUNCTUATION.test(after);
  return {
    opens: !spaceAfter && (!signAfter || spaceBefore || signBefore || UNSPACED.test(before)),
    closes: !spaceBefore && (!signBefore || spaceAfter || signAfter || UNSPACED.test(after)),
  };
}

/** Exclude a full stop at the end of a sentence, and a bracket opened before the address. */
function withoutTail(address) {
  let end = address.length;
  let surplus = (address.match(/\)/g) ?? []).length - (address.match(/\(/g) ?? []).length;
  while (end > 0) {
    const last = address[end - 1];
    if (last === ")" && surplus > 0) surplus -= 1;
    else if (!/[?!.,:;*_~'"\]]/.test(last)) break;
    end -= 1;
  }
  return address.slice(0, end);
}
