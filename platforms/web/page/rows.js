// The view of one message: a message of the user, an answer (complete or being written), thoughts of
// the model before it, or a notice.

import { MarkdownView, element, icon, plainWords } from "./markdown.js";

const LONG = 3_000; // characters from which a user's message is folded
const TALL = 30; // lines from which a user's message is folded
const MOST_QUOTED = 100; // characters of the message that a row answers
const MOST_SPOKEN = 1_000; // characters that a screen reader reads out by itself
const BLOCKS = "p, li, h3, h4, h5, h6, pre, blockquote, tr, br, ul, ol, .words";
const NAMES = new Map(Object.entries({ user: "You", answer: "Answer", thoughts: "Thoughts", notice: "Notice" }));
const STATES = new Map(Object.entries({
  waiting: "Waiting for its turn",
  held: "Kept with the stopped conversation",
  refused: "Not accepted: too many messages were waiting",
}));

const today = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const otherDay = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });

/** Thoughts arrive as notices, as on every platform; their ids begin with a different letter. */
const authorOf = (id, author) => (id.startsWith("r_") ? "thoughts" : author);

/** Thoughts are a quote under a heading, as on every platform; the page shows them in a fold. */
const bare = (text) => text.replace(/^💭[^\n]*\n?/u, "").replace(/^> ?/gm, "");

export class RowView {
  seq = Infinity; // a draft has no number yet
  row = null;
  #body;
  #files;
  #foot;
  #markdown = null;
  #fold = null;

  constructor(id, author) {
    this.id = id;
    this.author = authorOf(id, author);
    this.#body = element("div", { class: "body" });
    this.#files = element("div", { class: "files", hidden: true });
    this.#foot = element("div", { class: "foot" });
    this.node = element("article", { class: `row ${this.author}`, tabindex: "-1", "data-id": id, "aria-label": NAMES.get(this.author) ?? NAMES.get("notice") }, this.#body, this.#files, this.#foot);
    if (author !== "user") this.#markdown = new MarkdownView(this.#body);
    if (this.author === "notice") this.node.prepend(icon("info"));
    if (this.author === "thoughts") this.#foldUp();
  }

  /** Let the reader open and close the fold; until then it is open while it grows. */
  #foldUp() {
    const summary = element("summary", {}, "💭 Thinking");
    summary.addEventListener("click", () => this.node.classList.add("chosen"));
    this.#fold = element("details", {}, summary, this.#body);
    this.node.prepend(this.#fold);
  }

  /** Open or close the fold, unless the reader has done so. */
  unfold(isOpen) {
    if (this.#fold && !this.node.classList.contains("chosen")) this.#fold.open = isOpen;
  }

  /** True if the agent waits for an answer to this message. */
  get asks() {
    return this.row?.buttons.some(({ action }) => action.startsWith("approve:")) ?? false;
  }

  /** Files of a user's message, in the form a new message refers to them. */
  get attached() {
    return (this.row?.files ?? []).map(({ ref, name, type }) => ({ ref, name, type }));
  }

  get text() {
    return this.row?.text ?? this.#markdown?.text ?? "";
  }

  /** The message as a screen reader reads it out: its words without Markdown and buttons, and not all
      of a long one. */
  get spoken() {
    const body = this.#body.cloneNode(true);
    for (const node of body.querySelectorAll(".code-head, button")) node.remove();
    for (const node of body.querySelectorAll(BLOCKS)) node.after("\n");
    for (const node of body.querySelectorAll("td, th")) node.after(" ");
    const lines = body.textContent.split("\n").map((line) => line.trim());
    const text = lines.filter(Boolean).join("\n");
    if (text.length <= MOST_SPOKEN) return text;
    const space = text.lastIndexOf(" ", MOST_SPOKEN);
    return `${text.slice(0, space > 0 ? space : MOST_SPOKEN)} …`;
  }

  /** Show a row of the transcript; return true if anything has changed. */
  show(row) {
    if (this.row && JSON.stringify(this.row) === JSON.stringify(row)) return false;
    this.row = row;
    this.seq = row.seq;
    this.node.classList.remove("draft");
    this.unfold(false);
    try {
      if (this.#markdown) this.#markdown.update(this.#fold ? bare(row.text) : row.text);
      else this.#showWords(row.text);
      this.#showFiles(row.files ?? []);
      this.#foot.replaceChildren(...this.#footer(row));
    } catch (error) {
      console.warn("A message is shown as plain text:", error);
      this.#body.replaceChildren(plainWords(row.text));
    }
    return true;
  }

  /** Show which message this row answers; unknown if the message is not loaded. */
  quote(message) {
    if (!message) return;
    const text = message.text.trim().replace(/\s+/g, " ");
    const first = [...text.slice(0, 2 * MOST_QUOTED)].slice(0, MOST_QUOTED).join("");
    const words = first.length < text.length ? `${first}…` : text || "a file";
    const button = element("button", { type: "button", class: "quoted", dir: "auto", "data-do": "show", "data-row": message.id }, words);
    this.node.prepend(button);
  }

  /** Show the answer as written so far. */
  grow(text, status) {
    this.node.classList.add("draft");
    this.#markdown.update(this.#fold ? bare(text) : text, true);
    this.#foot.replaceChildren(...(status ? [element("span", { class: "status", dir: "auto" }, status)] : []));
  }

  /** Show a message that is still being sent. */
  pending(entry) {
    this.#showWords(entry.text);
    this.#showFiles(entry.files ?? []);
    this.node.classList.toggle("unsent", true);
    const parts = [];
    if (entry.reason) {
      parts.push(element("span", { class: "state bad" }, entry.reason));
      parts.push(element("button", { type: "button", "data-do": "send-again" }, "Send again"));
      parts.push(element("button", { type: "button", "data-do": "discard" }, "Discard"));
    } else {
      parts.push(element("span", { class: "state" }, "Sending…"));
    }
    this.#foot.replaceChildren(...parts);
  }

  #showWords(text) {
    // A single line that begins with a slash is a command.
    this.node.classList.toggle("command", /^\/[a-z]+[^\n]{0,60}$/.test(text));
    const words = plainWords(text);
    this.#body.replaceChildren(words);
    if (text.length > LONG || text.split("\n").length > TALL) {
      words.classList.add("folded");
      this.#body.append(element("button", { type: "button", class: "unfold", "data-do": "unfold" }, "Show all"));
    }
  }

  #showFiles(files) {
    const chat = location.hash.slice(location.hash.lastIndexOf("/") + 1);
    const shown = files.map(({ name, at, shown }) => {
      const label = element("span", { class: "chip-name", dir: "auto" }, name);
      if (!at) return element("span", { class: "chip" }, icon("file"), label);
      const href = `/web/chats/${chat}/files/${at}`;
      if (shown) return element("a", { class: "picture", href, target: "_blank", rel: "noopener" }, element("img", { src: href, alt: name, loading: "lazy" }));
      return element("a", { class: "chip", href, download: name }, icon("file"), label);
    });
    this.#files.replaceChildren(...shown);
    this.#files.hidden = files.length === 0;
  }

  #footer(row) {
    const parts = [];
    if (this.#fold) return parts;
    if (row.buttons.length) {
      const buttons = row.buttons.map(({ label, action }) => element("button", { type: "button", "data-do": "press", "data-action": action }, label));
      parts.push(element("div", { class: "buttons" }, ...buttons));
    }
    const state = this.author === "user" ? STATES.get(row.state) : undefined;
    if (state) parts.push(element("span", { class: row.state === "refused" ? "state bad" : "state" }, state));
    if (row.state === "refused") parts.push(element("button", { type: "button", "data-do": "resend" }, "Send again"));
    const tools = [time(row.at)];
    if (row.text) tools.push(tool("copy", "Copy", { "data-copy": "row" }));
    if (this.author !== "user") tools.push(tool("retry", "Try again", { "data-do": "retry", class: "tool retry" }));
    parts.push(element("div", { class: "tools" }, ...tools));
    return parts;
  }
}

function tool(name, label, attributes) {
  return element("button", { type: "button", class: "tool", title: label, "aria-label": label, ...attributes }, icon(name));
}

function time(at) {
  const moment = new Date(at);
  const isToday = moment.toDateString() === new Date().toDateString();
  return element("time", { datetime: moment.toISOString(), title: whole.format(moment) }, (isToday ? today : otherDay).format(moment));
}
