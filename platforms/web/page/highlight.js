// Syntax highlighting: a small tokenizer with a word table per language. Creates only text nodes.

const words = (text) => new Set(text.split(" "));

const C_LIKE = String.raw`(?<comment>\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$))`;
const HASH = String.raw`(?<comment>#[^\n]*)`;
const STRINGS = String.raw`(?<string>"(?:\\[\s\S]|[^"\\\n])*"?|'(?:\\[\s\S]|[^'\\\n])*'?)`;
const BACKTICK = String.raw`(?<string>"(?:\\[\s\S]|[^"\\\n])*"?|'(?:\\[\s\S]|[^'\\\n])*'?|` + "`(?:\\\\[\\s\\S]|[^`\\\\])*`?)";
const NUMBER = String.raw`(?<number>\b(?:0[xX][\da-fA-F_]+|0[bB][01_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)[a-zA-Z%]{0,4}\b)`;
const WORD = String.raw`(?<word>[A-Za-z_$\u00c0-\u1fff\u3040-\ud7ff][\w$\u00c0-\u1fff\u3040-\ud7ff]*)`;

const language = (parts, keywords = "", literals = "", flags = "") => ({
  pattern: new RegExp(parts.join("|"), "g" + flags),
  keywords: words(keywords),
  literals: words(literals),
  fold: flags.includes("i"),
});

const LITERALS = "true false null undefined None True False nil self this super";

const python = language(
  [HASH, String.raw`(?<string>[rRbBfFuU]{0,2}(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\[\s\S]|[^"\\\n])*"?|'(?:\\[\s\S]|[^'\\\n])*'?))`, String.raw`(?<attr>@[\w.]+)`, NUMBER, WORD],
  "and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield type",
  "True False None self cls",
);
const javascript = language(
  [C_LIKE, BACKTICK, NUMBER, WORD],
  "abstract as async await break case catch class const continue debugger declare default delete do else enum export extends finally for from function get if implements import in instanceof interface let namespace new of private protected public readonly return satisfies set static switch throw try type typeof var void while with yield",
  "true false null undefined this super NaN Infinity",
);
const bash = language(
  [String.raw`(?<comment>(?<=^|\s)#[^\n]*)`, String.raw`(?<string>"(?:\\[\s\S]|[^"\\])*"?|'[^']*'?)`, String.raw`(?<attr>\$(?:\{[^}\n]*\}?|[\w@#?$!*-]+))`, NUMBER, String.raw`(?<word>[A-Za-z_][\w-]*)`],
  "if then elif else fi for while until do done case esac in function select time return break continue exit export local readonly declare unset set source alias sudo cd echo",
  "true false",
);
const json = language(
  [C_LIKE, String.raw`(?<attr>"(?:\\.|[^"\\\n])*"(?=\s*:))`, String.raw`(?<string>"(?:\\.|[^"\\\n])*"?)`, String.raw`(?<number>-?\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b)`, WORD],
  "",
  "true false null",
);
const css = language(
  [String.raw`(?<comment>\/\*[\s\S]*?(?:\*\/|$))`, STRINGS, String.raw`(?<attr>--[\w-]+|[a-z-]+(?=\s*:[^:{}]*[;}\n]))`, String.raw`(?<keyword>@[\w-]+|![a-z]+)`, String.raw`(?<number>#[\da-fA-F]{3,8}\b|-?\b\d+(?:\.\d+)?(?:[a-z]+\b|%)?)`, String.raw`(?<word>[.#]?[A-Za-z_][\w-]*)`],
);
const sql = language(
  [String.raw`(?<comment>--[^\n]*|\/\*[\s\S]*?(?:\*\/|$))`, STRINGS, NUMBER, WORD],
  "add all alter and as asc begin between by case check column commit constraint create cross database default delete desc distinct drop else end exists foreign from full group having if in index inner insert intersect into is join key left like limit not null offset on or order outer over partition primary references returning right rollback select set table then transaction trigger union unique update using values view when where with",
  "true false null",
  "i",
);
const go = language(
  [C_LIKE, BACKTICK, NUMBER, WORD],
  "break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var",
  "true false nil iota",
);
const rust = language(
  [C_LIKE, String.raw`(?<string>b?r?"(?:\\[\s\S]|[^"\\])*"?|b?'(?:\\.[^']*|[^'\\\n])')`, String.raw`(?<attr>#!?\[[^\]\n]*\]?|'[a-z_]+\b|\b[a-z_]+!)`, NUMBER, WORD],
  "as async await break const continue crate dyn else enum extern fn for if impl in let loop match mod move mut pub ref return static struct trait type union unsafe use where while",
  "true false self Self None Some Ok Err",
);
const config = language(
  [String.raw`(?<comment>(?<=^|\s)[#;][^\n]*)`, String.raw`(?<attr>^[ \t]*(?:- )?[\w."'-]+(?=[ \t]*[:=])|^\s*\[[^\]\n]*\]+)`, STRINGS, NUMBER, WORD],
  "",
  "true false null yes no on off",
  "m",
);
const generic = language(
  [String.raw`(?<comment>\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|(?<=^|\s)#(?![a-z]+\b *[<"])[^\n]*)`, BACKTICK, NUMBER, WORD],
  "abstract auto bool boolean break byte case catch char class const continue def default delete do double else elseif end enum export extends extern final finally float fn for foreach from func function goto if implements import in include instanceof int interface let local long match module namespace new override package private protected public require return short signed sizeof static string struct switch synchronized template then throw throws trait try type typedef union unsigned use using val var virtual void volatile when while with yield",
  LITERALS,
);

// A Map: a name that a model wrote, such as "constructor", finds nothing that every object has.
const NAMES = new Map(Object.entries({
  python, py: python, python3: python,
  javascript, js: javascript, jsx: javascript, mjs: javascript, ts: javascript, tsx: javascript, typescript: javascript,
  bash, sh: bash, shell: bash, zsh: bash, console: bash,
  json, jsonc: json, json5: json, css, scss: css, less: css,
  sql, postgresql: sql, sqlite: sql, mysql: sql,
  go, golang: go, rust, rs: rust,
  yaml: config, yml: config, toml: config, ini: config, conf: config, properties: config, dockerfile: config, makefile: config,
}));
const PLAIN = words("text txt plain plaintext output log markdown md");
const TAG = /<!--[\s\S]{0,5000}?(?:-->|$)|<!?\/?[A-Za-z][\w:.-]*(?:[^<>"']|"[^"]{0,2000}"|'[^']{0,2000}'){0,2000}\/?>/g;
const ATTRIBUTE = /(?<word>[\w:@.-]+)(?=\s*=)|(?<string>"[^"]*"|'[^']*')/g;

/** Characters beyond which highlighting would take too long. */
export const LONGEST = 20_000;

/** Return the code as nodes: text, and spans with a class for the kind of token. */
export function highlight(code, name) {
  const lang = name.toLowerCase();
  if (code.length > LONGEST || PLAIN.has(lang)) return [document.createTextNode(code)];
  if (lang === "diff" || lang === "patch") return diff(code);
  if (lang === "html" || lang === "xml" || lang === "svg" || lang === "vue") return markup(code);
  return tokens(code, NAMES.get(lang) ?? generic);
}

function tokens(code, lang) {
  const out = new Pieces();
  for (const match of code.matchAll(lang.pattern)) {
    out.upTo(code, match.index);
    const text = match[0];
    const [kind] = Object.entries(match.groups).find(([, value]) => value !== undefined);
    out.add(text, kind === "word" ? wordKind(code, match.index, text, lang) : kind);
  }
  return out.rest(code);
}

function wordKind(code, start, text, lang) {
  const word = lang.fold ? text.toLowerCase() : text;
  if (lang.literals.has(word)) return "number";
  if (lang.keywords.has(word) && code[start - 1] !== ".") return "keyword";
  if (code[start + text.length] === "(") return "call";
  return /^[A-Z][a-z]/.test(text) ? "type" : "";
}

function markup(code) {
  const out = new Pieces();
  for (const match of code.matchAll(TAG)) {
    out.upTo(code, match.index);
    const tag = match[0];
    if (tag.startsWith("<!--")) {
      out.add(tag, "comment");
      continue;
    }
    const [head] = /^<!?\/?[\w:.-]+/.exec(tag);
    out.add(head, "keyword");
    const from = match.index + head.length;
    for (const part of tag.slice(head.length).matchAll(ATTRIBUTE)) {
      out.upTo(code, from + part.index);
      out.add(part[0], part.groups.word ? "attr" : "string");
    }
    out.upTo(code, match.index + tag.length);
  }
  return out.rest(code);
}

function diff(code) {
  const out = new Pieces();
  for (const line of code.split(/(?<=\n)/)) {
    const kind = { "+": "added", "-": "removed", "@": "attr" }[line[0]] ?? "";
    out.add(line, kind);
  }
  return out.rest(code);
}

/** Collects nodes and remembers the position reached in the code, so that no character is lost. */
class Pieces {
  nodes = [];
  end = 0;

  add(text, kind) {
    if (!text) return;
    this.end += text.length;
    if (!kind) {
      this.nodes.push(document.createTextNode(text));
      return;
    }
    const span = document.createElement("span");
    span.className = `t-${kind}`;
    span.textContent = text;
    this.nodes.push(span);
  }

  upTo(code, index) {
    this.add(code.slice(this.end, index), "");
  }

  rest(code) {
    this.upTo(code, code.length);
    return this.nodes;
  }
}
