// Parses Markdown into blocks. Pure: text in, plain objects out.
//
// Block: {type, raw, end} and, by type: heading {level, text} · paragraph {text} · rule ·
// code {language, text, open} · quote {blocks} · list {ordered, start, loose, items: [{blocks,
// checked}]} · table {align, head, rows} · math {text} · details {summary, blocks, after}. `raw` is the source text of the block and `end` the offset after it.

const DEEPEST = 24; // nesting depth of quotes and lists; deeper ones stay text

const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`\n]*?)[ \t]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}>[ \t]?/;
const ITEM = /^( *)([-+*]|\d{1,9}[.)])(?:([ \t]+)(.*))?$/;
const DELIMITERS = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const ENVIRONMENT = /^\\begin\{([A-Za-z]{1,20}\*?)\}/;
const NOTE_DEFINITION = /^ {0,3}\[\^[^[\]^\s]{1,99}\]:/;
const UNDERLINE = /^ {0,3}=+[ \t]*$/;
const INFO = /^([A-Za-z][\w+#.-]{0,29})(?:[,:][\w/=,.-]*)?(?:\s+(?:[\w/-]+\.\w+|.*[={].*))?$/;
const DEFINITION_LINE = /^ {0,3}\[(?!\^)[^[\]]{1,999}\]:/;
const DETAILS = /^ {0,3}<details(?: open(?:=(?:""|''|"?open"?))?)?>/i;
const DETAILS_TAG = /<(\/?)details\b[^<>]*>/gi;
const DETAILS_END = /^ {0,3}<\/details> *$/i;
const SUMMARY = /^\s*<summary>(.*?)(?:<\/summary>|\n\s*\n|$)/is;
const TEX = /[\\^_={}]/;
const TASK = /^\[([ xX])\][ \t]+/;

/** Parse the blocks of a text, beginning at an offset that must be the end of a block; `inNote` tells that
    this block belongs to a footnote. */
export function readBlocks(text, from = 0, inNote = false) {
  const lines = text.slice(from).split("\n");
  const offsets = [from];
  for (const line of lines) offsets.push(offsets.at(-1) + line.length + 1);
  return blocksOf(lines, 0, inNote).map((block) => {
    const end = Math.min(offsets[block.to], text.length);
    return { ...block, raw: text.slice(offsets[block.from], end), end };
  });
}

function blocksOf(lines, depth, inNote = false) {
  const blocks = [];
  let at = 0;
  let noteEnd = inNote ? outdentNote(lines, 0) : 0; // lines up to here belong to a footnote
  while (at < lines.length) {
    if (isBlank(lines[at]) || DETAILS_END.test(lines[at])) {
      at += 1;
      continue;
    }
    const block = blockAt(lines, at, depth);
    block.from = at;
    if (block.type === "paragraph" && NOTE_DEFINITION.test(lines[at])) noteEnd = Math.max(block.to, outdentNote(lines, block.to));
    block.inNote = at < noteEnd;
    blocks.push(block);
    at = block.to;
  }
  return blocks;
}

/** Remove the indentation of a footnote's further paragraphs, which would make them code; return their end. */
function outdentNote(lines, from) {
  let at = from;
  for (; at < lines.length && (isBlank(lines[at]) || /^(?: {4}|\t)/.test(lines[at])); at += 1) lines[at] = lines[at].replace(/^(?: {4}|\t)/, "");
  return at;
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return fencedCode(lines, at, fence);
  const formula = math(lines, at);
  if (formula) return formula;
  const heading = HEADING.exec(line);
  if (heading) {
    const text = (heading[2] ?? "").trim().replace(/(^|[ \t])#+$/, "").trim();
    return { type: "heading", level: heading[1].length, text, to: at + 1 };
  }
  if (RULE.test(line)) return { type: "rule", to: at + 1 };
  if (depth < DEEPEST) {
    if (QUOTE.test(line)) return quote(lines, at, depth);
    if (itemAt(line)) return list(lines, at, depth);
    if (DETAILS.test(line)) return details(lines, at, depth);
  }
  if (startsTable(lines, at)) return table(lines, at);
  if (/^(?: {4}|\t)/.test(line)) return indentedCode(lines, at);
  return paragraph(lines, at, depth);
}

function fencedCode(lines, at, [, indent, fence, info]) {
  const close = closing(fence);
  let end = at + 1;
  while (end < lines.length && !close.test(lines[end])) end += 1;
  const open = end === lines.length;
  const code = lines.slice(at + 1, end).map((line) => outdentCode(line, indent.length));
  const language = INFO.exec(info)?.[1] ?? "";
  if (info && !language) code.unshift(info); // no language, but words that must not be lost
  const text = code.join("\n");
  return { type: "code", language, text, open, to: open ? end : end + 1 };
}

/** Return the formula that begins in this line, or null. Without its end it lasts until the text ends; a
    blank line before that shows that there is no formula. */
function math(lines, at) {
  const line = lines[at].trim();
  const environment = ENVIRONMENT.exec(line);
  const opening = environment ? environment[0] : line.slice(0, 2);
  if (!environment && opening !== "$$" && opening !== "\\[") return null;
  const close = environment ? `\\end{${environment[1]}}` : opening === "$$" ? "$$" : "\\]";
  const first = line.slice(opening.length);
  const sameLine = first.indexOf(close);
  if (sameLine >= 0) return /^[ .,]*$/.test(first.slice(sameLine + close.length)) && first.slice(0, sameLine).trim() ? formula(lines, at, at + 1) : null;
  if (first.trim() && !TEX.test(first)) return null; // "$$ is money"
  for (let end = at + 1; end < lines.length; end += 1) {
    if (isBlank(lines[end])) return end === lines.length - 1 ? formula(lines, at, end) : null;
    const closed = lines[end].indexOf(close);
    if (closed >= 0) return /^[ .,]*$/.test(lines[end].slice(closed + close.length)) ? formula(lines, at, end + 1) : null;
  }
  return formula(lines, at, lines.length);
}

function formula(lines, at, to) {
  return { type: "math", text: lines.slice(at, to).join("\n").trim(), to };
}

/** Return the section that can be folded and begins in this line; without its end it lasts until the text ends. */
function details(lines, at, depth) {
  const inside = [];
  let after = [];
  let level = 1;
  let close = null; // pattern that ends the code fence containing the line
  let end = at;
  for (; level && end < lines.length; end += 1) {
    const line = end === at ? lines[at].replace(DETAILS, "") : lines[end];
    const fence = close ? null : FENCE.exec(line);
    if (close) close = close.test(line) ? null : close;
    else if (fence) close = closing(fence[2]);
    else {
      for (const tag of line.matchAll(DETAILS_TAG)) {
        level += tag[1] ? -1 : 1;
        if (level) continue;
        inside.push(line.slice(0, tag.index));
        after = [line.slice(tag.index + tag[0].length).trimStart()];
        break;
      }
    }
    if (level) inside.push(line);
  }
  const text = inside.join("\n");
  const summary = SUMMARY.exec(text);
  const blocks = blocksOf(text.slice(summary ? summary[0].length : 0).split("\n"), depth + 1);
  const title = summary ? summary[1].trim().replace(/\s+/g, " ") : "";
  const open = / open/i.test(DETAILS.exec(lines[at])[0]);
  return { type: "details", open, summary: title || "…", blocks, after: blocksOf(after, depth + 1), to: end };
}

function indentedCode(lines, at) {
  let end = at + 1;
  while (end < lines.length && (isBlank(lines[end]) || /^(?: {4}|\t)/.test(lines[end]))) end += 1;
  while (isBlank(lines[end - 1])) end -= 1;
  const text = lines.slice(at, end).map((line) => outdent(line, 4)).join("\n");
  return { type: "code", language: "", text, open: false, to: end };
}

function paragraph(lines, at, depth) {
  let end = at + 1;
  const isNote = /^ *\[\^/.test(lines[at]); // a link definition directly below a footnote is none of its text
  const goesOn = (line) => !isBlank(line) && !(isNote && DEFINITION_LINE.test(line));
  const defines = DEFINITION_LINE.test(lines[at]);
  const underlined = (number) => !defines && number < lines.length && UNDERLINE.test(lines[number]);
  while (end < lines.length && goesOn(lines[end]) && !underlined(end) && !interrupts(lines, end, depth)) end += 1;
  const text = lines.slice(at, end).map((line) => line.trim()).join("\n");
  if (underlined(end)) return { type: "heading", level: 1, text, to: end + 1 };
  return { type: "paragraph", text, to: end };
}

/** True if the block of this line ends a paragraph without a blank line between them. */
function interrupts(lines, at, depth) {
  const line = lines[at];
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line) || startsTable(lines, at)) return true;
  if (math(lines, at) || DETAILS_END.test(line)) return true;
  if (depth >= DEEPEST) return false;
  if (DETAILS.test(line)) return true;
  if (QUOTE.test(line)) return true;
  const item = itemAt(line);
  return Boolean(item && item.text && (!item.ordered || item.start === 1));
}

function quote(lines, at, depth) {
  const inner = new Inner();
  let end = at;
  while (end < lines.length) {
    if (QUOTE.test(lines[end])) inner.push(lines[end].replace(QUOTE, ""));
    else if (inner.goesOnWith(lines, end, depth)) inner.push(lines[end]);
    else break;
    end += 1;
  }
  return { type: "quote", blocks: blocksOf(inner.lines, depth + 1), to: end };
}

/** Collects the lines inside a quote or a list item. */
class Inner {
  lines = [];
  #close = null; // pattern that ends the code fence containing the last line

  get isInCode() {
    return this.#close !== null;
  }

  push(line) {
    this.lines.push(line);
    if (this.#close) {
      if (this.#close.test(line)) this.#close = null;
      return;
    }
    const fence = FENCE.exec(line);
    if (fence) this.#close = closing(fence[2]);
  }

  /** True if a line without the marker still belongs to the last paragraph. */
  goesOnWith(lines, at, depth) {
    const before = this.lines.at(-1);
    if (before === undefined || isBlank(before) || isBlank(lines[at])) return false;
    if (this.#close || FENCE.test(before) || HEADING.test(before) || RULE.test(before)) return false;
    return !interrupts(lines, at, depth) && !itemAt(lines[at]);
  }
}

function closing(fence) {
  return new RegExp(`^ {0,3}${fence[0]}{${fence.length},}[ \\t]*$`);
}

function itemAt(line) {
  const match = ITEM.exec(line);
  if (!match || match[1].length > 3) return null;
  const [, indent, mark, space = " ", text = ""] = match;
  const ordered = mark.length > 1;
  const gap = space.length > 4 ? 1 : space.replace(/\t/g, "    ").length;
  return {
    ordered, text, indent: indent.length, kind: mark.at(-1), start: ordered ? Number(mark.slice(0, -1)) : 1,
    content: indent.length + mark.length + gap,
  };
}

function list(lines, at, depth) {
  const first = itemAt(lines[at]);
  const items = [];
  let loose = false;
  let end = at;
  while (end < lines.length) {
    const item = itemAt(lines[end]);
    if (!item || item.kind !== first.kind || RULE.test(lines[end])) break;
    const inner = new Inner();
    inner.push(lines[end].slice(item.content));
    end = itemLines(lines, end + 1, item, inner, depth);
    const blanks = dropBlanks(inner.lines);
    const next = end < lines.length && !RULE.test(lines[end]) ? itemAt(lines[end]) : null;
    if (next?.kind !== first.kind) end -= blanks; // these blank lines are after the list
    else if (blanks) loose = true;
    items.push(readItem(inner.lines, depth));
    if (hasGap(items.at(-1).blocks)) loose = true;
  }
  return { type: "list", ordered: first.ordered, start: first.start, loose, items, to: end };
}

/** Collect the lines of an item and return the index of the first line after it. */
function itemLines(lines, from, item, inner, depth) {
  // A child may be indented less than its parent's text: two columns are enough.
  const needed = Math.min(item.content, item.indent + 2);
  let at = from;
  for (; at < lines.length; at += 1) {
    const line = lines[at];
    if (isBlank(line)) {
      if (inner.lines.length === 1 && isBlank(inner.lines[0])) break; // an empty item ends here
      inner.push("");
    } else if (indentOf(line) >= needed) {
      inner.push(inner.isInCode ? outdentCode(line, item.content) : outdent(line, item.content));
    } else if (inner.goesOnWith(lines, at, depth)) {
      inner.push(line);
    } else {
      break;
    }
  }
  return at;
}

function dropBlanks(lines) {
  let blanks = 0;
  while (lines.length > 1 && isBlank(lines.at(-1))) {
    lines.pop();
    blanks += 1;
  }
  return blanks;
}

function readItem(lines, depth) {
  const task = TASK.exec(lines[0]);
  if (!task) return { blocks: blocksOf(lines, depth + 1) };
  const rest = [lines[0].slice(task[0].length), ...lines.slice(1)];
  return { checked: task[1] !== " ", blocks: blocksOf(rest, depth + 1) };
}

/** True if an item has two paragraphs, so that the list is rendered with space between items. */
function hasGap(blocks) {
  return blocks.filter((block) => block.type === "paragraph").length > 1;
}

function startsTable(lines, at) {
  if (at + 1 >= lines.length || !lines[at].includes("|") || !lines[at + 1].includes("-")) return false;
  if (!DELIMITERS.test(lines[at + 1])) return false;
  return cellsOf(lines[at]).length === cellsOf(lines[at + 1]).length;
}

function table(lines, at) {
  const align = cellsOf(lines[at + 1]).map((cell) => {
    if (cell.startsWith(":") && cell.endsWith(":")) return "center";
    return cell.endsWith(":") ? "right" : "";
  });
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && !isBlank(lines[end]) && !FENCE.test(lines[end])) end += 1;
  const rows = lines.slice(at + 2, end).map((line) => joinRest(cellsOf(line), align.length));
  return { type: "table", align, head: cellsOf(lines[at]), rows, to: end };
}

/** Cells without a column in the header are joined into the last one. */
function joinRest(cells, count) {
  if (cells.length <= count) return cells;
  return [...cells.slice(0, count - 1), cells.slice(count - 1).join(" | ")];
}

/** Split a table row at the bars that are not escaped and not inside code. */
function cellsOf(line) {
  const cells = [""];
  for (const [piece] of line.trim().replace(/^\|/, "").matchAll(/\\.|\||`[^`]*`|[^\\|`]+|`|\\/g)) {
    if (piece === "|") cells.push("");
    else cells[cells.length - 1] += piece.replace(/\\\|/g, "|");
  }
  if (!cells.at(-1).trim()) cells.pop();
  return cells.map((cell) => cell.trim());
}

function isBlank(line) {
  return !/\S/.test(line);
}

function indentOf(line) {
  let columns = 0;
  for (const letter of line) {
    if (letter === " ") columns += 1;
    else if (letter === "\t") columns += 4 - (columns % 4);
    else break;
  }
  return columns;
}

/** Remove up to this many columns of leading white space. */
function outdent(line, columns) {
  const whole = line.replace(/^[ \t]+/, (space) => space.replace(/\t/g, "    "));
  return whole.slice(Math.min(columns, indentOf(whole)));
}

/** Remove up to this many columns of leading white space from a line of code, whose other tabs stay. */
function outdentCode(line, columns) {
  let column = 0;
  let at = 0;
  while (column < columns && (line[at] === " " || line[at] === "\t")) {
    column += line[at] === " " ? 1 : 4 - (column % 4);
    at += 1;
  }
  return " ".repeat(Math.max(0, column - columns)) + line.slice(at);
}
