// Link definitions and footnotes, which other lines of the same text refer to. Pure.

const DEFINITION = /\[((?!\^)(?:[^[\]\\]|\\.){1,999})\]:[ ]*\n?[ ]*(?:<([^<>\n]*)>|([^\s<]\S*))(?:(?:[ ]+|[ ]*\n[ ]*)(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\((?:[^()\\]|\\.)*\)))?[ ]*(?:\n|$)/sy;
const NOTE = /\[\^([^[\]^\s]{1,99})\]/y;
const NOTES = /\[\^([^[\]^\s]{1,99})\]/g;
const NOTE_DEFINITIONS = /^[ >]{0,9}\[\^([^[\]^\s]{1,99})\]:/gm;
const LONGEST_LABEL = 999;

/** Return the footnotes of a text that are both defined and referred to. */
export function noteLabels(text) {
  const labels = new Set();
  if (!text.includes("[^")) return labels;
  const count = (pattern) => {
    const counts = new Map();
    for (const [, label] of text.matchAll(pattern)) counts.set(label, (counts.get(label) ?? 0) + 1);
    return counts;
  };
  const named = count(NOTES);
  for (const [label, times] of count(NOTE_DEFINITIONS)) if (named.get(label) > times) labels.add(label);
  return labels;
}

/** Return the label of a footnote that begins here, or null. */
export function noteAt(text, at, references) {
  NOTE.lastIndex = at;
  const found = references?.notes.size ? NOTE.exec(text) : null;
  return found && references.notes.has(found[1]) ? found[1] : null;
}

/** Return the definitions at the start of the paragraphs of a block: [label, address, source]. */
export function definitionsOf(block) {
  if (block.type === "paragraph") return paragraphDefinitions(block.text).found;
  const inner = block.blocks ?? block.items?.flatMap((item) => item.blocks) ?? [];
  return [...inner, ...(block.after ?? [])].flatMap(definitionsOf);
}

function paragraphDefinitions(text) {
  const found = [];
  let end = 0;
  while (text[end] === "[") {
    DEFINITION.lastIndex = end;
    const match = DEFINITION.exec(text);
    if (!match || !normal(match[1]) || !isBalanced(match[3] ?? "")) break;
    found.push([normal(match[1]), match[2] ?? match[3], match[0]]);
    end = DEFINITION.lastIndex;
  }
  return { found, end };
}

/** An address with half a pair of parentheses may still be written. */
function isBalanced(address) {
  return address.split("(").length === address.split(")").length;
}

/** Remove the definitions at the start of a paragraph that are used; the others stay visible. */
export function withoutDefinitions(text, references) {
  if (!references || text[0] !== "[") return text;
  const { found, end } = paragraphDefinitions(text);
  const isHidden = ([label, address]) => references.hidden.has(label) && references.addresses.get(label) === address;
  // Its own label must not become a link.
  const visible = found.filter((each) => !isHidden(each)).map(([, , source]) => `&#91;${source.slice(1)}`);
  return (visible.join("") + text.slice(end)).trim();
}

/** Look up the address of a label, and note that it was asked for. */
export function addressOf(label, references) {
  if (!references || label.length > LONGEST_LABEL) return undefined;
  const name = normal(label);
  references.asked.add(name);
  return references.addresses.get(name);
}

/** Labels ignore case and the width of spaces; `ẞ`, `ß` and `SS` are the same. */
function normal(label) {
  return label.trim().replace(/\s+/g, " ").toLowerCase().toUpperCase();
}
