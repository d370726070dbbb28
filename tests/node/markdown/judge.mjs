// Judges Markdown with libraries of other people.
//
// `node judge.mjs spec` prints the examples of CommonMark. `discord` reads a JSON list of texts and prints
// what two readers of Discord's Markdown see in each: runs of words with their looks, and HTML. `slack` reads a JSON list of block lists and prints
// those that the official types refuse, and checks that the schema refuses a wrong block.

import { createRequire } from "node:module";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

const require = createRequire(import.meta.url);
const input = () => JSON.parse(readFileSync(0, "utf8"));
const print = (what) => process.stdout.write(JSON.stringify(what));

async function spec() {
  const { tests } = await import("commonmark-spec");
  print(tests.map(({ markdown, html, section, number }) => ({ markdown: markdown.replaceAll("→", "\t"), html: html.replaceAll("→", "\t"), section, number })));
}

const LOOKS = { strong: "bold", em: "italic", underline: "underline", strikethrough: "strike", spoiler: "spoiler", inlineCode: "code", codeBlock: "code", blockQuote: "quote", heading: "heading", link: "link" };

// The runs of a text: [words, looks].
function runs(node, looks = []) {
  if (Array.isArray(node)) return node.flatMap((each) => runs(each, looks));
  if (typeof node === "string") return [[node, looks]];
  if (!node || typeof node !== "object") return [];
  if (node.type === "br" || node.type === "newline") return [["\n", looks]];
  if (node.type === "twemoji") return [[node.name, looks]];
  const look = LOOKS[node.type];
  return runs(node.content ?? node.target ?? "", look ? [...looks, look] : looks);
}

async function discord() {
  const first = (await import("discord-markdown-parser")).default;
  const second = await import("@odiffey/discord-markdown");
  const toHtml = second.toHTML ?? second.default.toHTML;
  print(input().map((text) => [runs(first.parse(text, "extended")), toHtml(text)]));
}

async function slack() {
  const { createGenerator } = await import("ts-json-schema-generator");
  const Ajv = (await import("ajv")).default;
  const types = join(dirname(require.resolve("@slack/types/package.json")), "dist/index.d.ts");
  writeFileSync("tsconfig.json", JSON.stringify({ compilerOptions: { module: "nodenext", moduleResolution: "nodenext", skipLibCheck: true, strict: true }, files: [types] }));
  const schema = createGenerator({ path: types, tsconfig: "tsconfig.json", type: "KnownBlock", skipTypeCheck: true }).createSchema("KnownBlock");
  const check = new Ajv({ strict: false, allErrors: false }).compile(schema);
  const wrong = [];
  for (const blocks of input()) for (const block of blocks) if (!check(block)) wrong.push([block, check.errors]);
  const refuses = !check({ type: "markdown" }) && !check({ type: "section", text: 1 });
  print({ wrong, refuses });
}

await { spec, discord, slack }[process.argv[2]]();
