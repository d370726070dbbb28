// Renders Markdown as DOM nodes. It never creates HTML from text: words can only become text nodes.
// `blocks.js` parses headings, lists, code and other blocks, `inline.js` the text inside a line.

import { readBlocks } from "./blocks.js";
import { highlight } from "./highlight.js";
import { renderInline } from "./inline.js";
import { renderFormula } from "./math.js";
import { definitionsOf, noteLabels, withoutDefinitions } from "./references.js";

const GROWING_CODE = 8_000; // characters up to which growing code is highlighted

/** Create an element; children are nodes or strings. */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  node.append(...children); // first: with dir="auto" set, the browser would check each child again
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  return node;
}

/** Create one of the icons declared in index.html. */
export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(space, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

/** Create an element that shows a text as it is. */
export function plainWords(text) {
  const words = element("div", { class: "words", dir: "auto" });
  words.textContent = text;
  return words;
}

/** A text that may grow: only changed blocks are rendered again. */
export class MarkdownView {
  #node;
  #text = "";
  #blocks = []; // blocks from readBlocks, each with its node
  #isPlain = false; // the text could not be rendered
  #known = ""; // the definitions and footnotes that the blocks were rendered with

  constructor(node) {
    this.#node = node;
  }

  get text() {
    return this.#text;
  }

  /** Show this text; `growing` means that more will follow. A text that cannot be rendered is
      shown as it is. */
  update(given, growing = false) {
    const text = given.replace(/\r\n?/g, "\n");
    if (this.#isPlain && growing) {
      this.#showPlain(text);
      return;
    }
    try {
      if (this.#isPlain) this.#reset();
      this.#render(text, growing);
    } catch (error) {
      console.warn("A text is shown without its formatting:", error);
      this.#showPlain(text);
    }
  }

  #showPlain(text) {
    this.#isPlain = true;
    this.#blocks = [];
    this.#text = text;
    this.#node.replaceChildren(plainWords(text));
  }

  #reset() {
    this.#isPlain = false;
    this.#known = "";
    this.#text = "";
    this.#node.replaceChildren();
  }

  #render(text, growing) {
    const kept = this.#keep(text);
    const start = kept.length ? kept.at(-1).end : 0;
    const fresh = readBlocks(text, start, kept.at(-1)?.inNote);
    const old = this.#blocks.slice(kept.length);
    for (const block of fresh) {
      block.plain = growing && block.type === "code" && block.open && block.text.length > GROWING_CODE;
      block.definitions = text.includes("]:") ? definitionsOf(block) : [];
    }
    const blocks = [...kept, ...fresh];
    const references = this.#references(blocks, text);
    const known = JSON.stringify([...references.addresses, ...references.notes]);
    fresh.forEach((block, index) => {
      const before = old[index];
      const same = known === this.#known && before?.raw === block.raw && before.plain === block.plain;
      if (same) Object.assign(block, { node: before.node, asked: before.asked, shown: before.shown });
      else this.#draw(block, references, before);
    });
    if (known !== this.#known) for (const block of kept) this.#draw(block, references, block);
    for (const gone of old.slice(fresh.length)) gone.node.remove();
    this.#showUnused(blocks, references);
    this.#blocks = blocks;
    this.#text = text;
    this.#known = known;
  }

  #references(blocks, text) {
    const addresses = new Map();
    for (const [label, address] of blocks.flatMap((block) => block.definitions)) {
      if (!addresses.has(label)) addresses.set(label, address);
    }
    return { addresses, notes: noteLabels(text), hidden: new Set(addresses.keys()), asked: null };
  }

  /** Render a block, in place of the one before. */
  #draw(block, references, before) {
    const old = before?.node;
    block.asked = new Set(); // labels that the block may refer to
    block.shown = ""; // labels of its definitions that are visible
    block.node = renderBlock(block, { ...references, asked: block.asked });
    // A section that grows stays as the reader has left it.
    if (old && block.type === "details" && before.type === "details" && block.raw.startsWith(before.raw)) block.node.open = old.open;
    if (old) old.replaceWith(block.node);
    else this.#node.append(block.node);
  }

  /** Show the definitions that nothing refers to: they may be meant to be read. */
  #showUnused(blocks, references) {
    if (!references.addresses.size) return;
    const asked = new Set(blocks.flatMap((block) => [...block.asked]));
    const hidden = new Set([...references.hidden].filter((label) => asked.has(label)));
    for (const block of blocks) {
      const shown = block.definitions.map(([label]) => label).filter((label) => !hidden.has(label)).join("\n");
      if (shown === block.shown) continue;
      this.#draw(block, { ...references, hidden }, block);
      block.shown = shown;
    }
  }

  /** Blocks to keep: if the text has only grown, all but the last two. The growing line may still
      change the meaning of itself and of the line before it, but nothing further back. */
  #keep(text) {
    if (!this.#text || !text.startsWith(this.#text)) return [];
    return this.#blocks.slice(0, -2);
  }
}

/** Render a whole text at once. */
export function renderMarkdown(node, text) {
  new MarkdownView(node).update(text);
}

/** Render the text of a paragraph, without the definitions that are used. */
function inlines(text, references) {
  return renderInline(withoutDefinitions(text, references), references);
}

function renderBlock(block, references) {
  switch (block.type) {
    case "heading":
      return element(`h${Math.min(block.level + 2, 6)}`, { dir: "auto", class: `h${block.level}` }, ...renderInline(block.text, references));
    case "rule":
      return element("hr");
    case "code":
      return renderCode(block);
    case "math":
      return renderMath(block);
    case "quote":
      return element("blockquote", { dir: direction(block) }, ...block.blocks.map((each) => renderBlock(each, references)));
    case "list":
      return renderList(block, references);
    case "table":
      return renderTable(block, references);
    case "details":
      return renderDetails(block, references);
    default: {
      const children = inlines(block.text, references);
      return children.length ? element("p", { dir: "auto" }, ...children) : document.createComment("");
    }
  }
}

function renderMath(block) {
  const formula = renderFormula(block.text, true);
  if (formula) return element("div", { class: "formula", dir: "ltr", tabindex: "0", role: "region", "aria-label": "Formula" }, formula);
  return element("pre", { class: "math", dir: "ltr", tabindex: "0" }, block.text);
}

function renderDetails(block, references) {
  const blocks = (list) => list.map((each) => renderBlock(each, references));
  const summary = element("summary", { dir: "auto" }, ...renderInline(block.summary, references));
  const node = element("details", { dir: direction(block), open: block.open }, summary, ...blocks(block.blocks));
  return block.after.length ? element("div", {}, node, ...blocks(block.after)) : node;
}

const LETTER = /\p{L}/u;
const RIGHT_TO_LEFT = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u;

/** Return the direction of the first letter. The browser's own choice (`auto`) leaves out children that
    choose for themselves, and the numbers of a list must be on the side of its margin. */
function direction(block) {
  const letter = LETTER.exec(wordsOf(block));
  return letter && RIGHT_TO_LEFT.test(letter[0]) ? "rtl" : "ltr";
}

function wordsOf(block) {
  switch (block.type) {
    case "list":
      return block.items.map((item) => item.blocks.map(wordsOf).join(" ")).join(" ");
    case "quote":
      return block.blocks.map(wordsOf).join(" ");
    case "details":
      return [block.summary, ...block.blocks.map(wordsOf)].join(" ");
    case "table":
      return [...block.head, ...block.rows.flat()].join(" ");
    case "heading":
    case "paragraph":
      return block.text.replace(/`[^`]*`/g, " ");
    default:
      return "";
  }
}

function renderCode(block) {
  const code = element("code", {}, ...(block.plain ? [block.text] : highlight(block.text, block.language)));
  const copy = element("button", { type: "button", class: "copy", "data-copy": "code", "aria-label": "Copy this code" }, icon("copy"), "Copy");
  const head = element("div", { class: "code-head" }, element("span", {}, block.language || "text"), copy);
  const body = element("pre", { tabindex: "0", dir: "ltr" }, code);
  return element("div", { class: "code" }, head, body);
}

function renderList(block, references) {
  const items = block.items.map((item) => {
    const parts = item.blocks.flatMap((child) =>
      child.type === "paragraph" && !block.loose ? inlines(child.text, references) : [renderBlock(child, references)],
    );
    if (item.checked === undefined) return element("li", {}, ...parts);
    const box = element("input", { type: "checkbox", disabled: true, checked: item.checked, "aria-label": item.checked ? "done" : "to do" });
    return element("li", { class: "task" }, box, " ", ...parts);
  });
  const dir = direction(block);
  if (!block.ordered) return element("ul", { dir }, ...items);
  return element("ol", { dir, start: block.start === 1 ? undefined : String(block.start) }, ...items);
}

function renderTable(block, references) {
  const row = (cells, tag) =>
    element("tr", {}, ...block.align.map((side, index) => element(tag, { dir: "auto", class: side || undefined }, ...renderInline(cells[index] ?? "", references))));
  const table = element(
    "table",
    {},
    element("thead", {}, row(block.head, "th")),
    element("tbody", {}, ...block.rows.map((cells) => row(cells, "td"))),
  );
  return element("div", { class: "table", dir: direction(block), tabindex: "0", role: "region", "aria-label": "Table" }, table);
}
