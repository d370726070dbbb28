// One open conversation: its rows, the answers being written, and its live stream.

import { Draft } from "./draft.js";
import { Stream, get } from "./net.js";
import { RowView } from "./rows.js";

const FIRST = 100; // rows that the stream brings at first
const MOST = 5_000; // rows that the daemon gives in one look back
const TYPING = 8_000; // a sign of life counts for so long
const FADE = 600; // a draft that vanishes waits so long for the row that takes its place

const isRunning = ({ author, row }) => author === "user" && row.state === "running";

export class Conversation {
  loaded = false;
  #parts;
  #on;
  #rows = new Map(); // id → view, in the order of the log
  #drafts = new Map();
  #typing = 0;
  #asked = FIRST;
  #whole = false; // there is nothing before the first row shown
  #stream;

  /** `parts` are elements of the page; `on` has changed(), grown(), row(row, isNew), chats(), state(word). */
  constructor(chat, parts, on) {
    this.chat = chat;
    this.#parts = parts;
    this.#on = on;
    parts.log.replaceChildren();
    parts.live.replaceChildren();
    this.open();
  }

  open() {
    this.#stream ??= new Stream(this.chat, { event: (name, data) => this.#take(name, data), state: this.#on.state });
  }

  close() {
    this.#stream?.end();
    this.#stream = null;
    clearTimeout(this.#typing);
    this.#typing = 0;
  }

  get isOpen() {
    return this.#stream !== null;
  }

  hurry() {
    this.#stream?.hurry();
  }

  get busy() {
    return this.writing || this.thinking || this.asking;
  }

  get writing() {
    return this.#drafts.size > 0;
  }

  get thinking() {
    return this.#typing !== 0 || this.rows.some(isRunning);
  }

  /** Whether the work waits for somebody to answer a question. */
  get asking() {
    const { rows } = this;
    return rows.some((view) => view.asks) && rows.some(isRunning);
  }

  get rows() {
    return [...this.#rows.values()];
  }

  has(id) {
    return this.#rows.has(id);
  }

  find(id) {
    return this.#rows.get(id);
  }

  /** Whether there may be more to look back on. Not all that is stored is shown, so a full page
      may have fewer rows than were asked for. */
  get hasEarlier() {
    return this.loaded && !this.#whole && this.#rows.size >= this.#asked * 0.9;
  }

  /** Look further back; gives a function that shows what was found. */
  async earlier() {
    const most = this.#asked * 4;
    const { rows } = await get(`/web/chats/${this.chat}/rows?limit=${most}`);
    this.#whole = rows.every((row) => this.#rows.has(row.id)) || most > MOST;
    this.#asked = most;
    return () => rows.forEach((row) => this.#showRow(row));
  }

  #take(name, data) {
    if (name === "row") this.#showRow(data);
    else if (name === "edit") this.#edit(data);
    else if (name === "delete") this.#remove(data.id);
    else if (name === "draft") this.#draft(data);
    else if (name === "typing") this.#sign();
    else if (name === "chats") this.#on.chats();
    else if (name === "ready") this.#ready(data);
    this.#on.changed();
  }

  #ready({ drafts }) {
    for (const id of this.#drafts.keys()) if (!drafts.includes(id)) this.#dropDraft(id);
    this.loaded = true;
  }

  #showRow(row) {
    const known = this.#rows.get(row.id);
    const draft = this.#drafts.get(row.id);
    const view = known ?? draft?.settle() ?? new RowView(row.id, row.author);
    this.#drafts.delete(row.id);
    if (row.author !== "user") this.#quiet();
    if (!view.show(row)) return;
    if (known) return;
    this.#insert(view);
    this.#on.row(row, this.loaded);
  }

  /** Put a view where its number belongs; nearly always that is the end. */
  #insert(view) {
    const later = [];
    const views = [...this.#rows.entries()];
    while (views.length && views.at(-1)[1].seq > view.seq) later.unshift(views.pop());
    this.#parts.log.insertBefore(view.node, later[0]?.[1].node ?? null);
    for (const [id] of later) this.#rows.delete(id);
    this.#rows.set(view.id, view);
    for (const [id, other] of later) this.#rows.set(id, other);
  }

  #edit({ id, text, buttons }) {
    const view = this.#rows.get(id);
    if (view) view.show({ ...view.row, text, buttons });
  }

  #remove(id) {
    this.#rows.get(id)?.node.remove();
    this.#rows.delete(id);
  }

  #draft({ id, gone, ...news }) {
    if (this.#rows.has(id)) return;
    if (gone) {
      const draft = this.#drafts.get(id);
      if (!draft) return;
      if (!draft.text) {
        this.#dropDraft(id);
        return;
      }
      draft.leave();
      // What is posted instead comes in a moment; taking the text away before would flicker.
      setTimeout(() => {
        if (this.#drafts.get(id) !== draft || !draft.leaving) return;
        this.#dropDraft(id);
        this.#on.changed();
      }, FADE);
      return;
    }
    if (!this.#drafts.has(id)) {
      const draft = new Draft(id, this.#on.grown);
      this.#drafts.set(id, draft);
      if (draft.view.author === "thoughts") this.#parts.live.prepend(draft.view.node);
      else this.#parts.live.append(draft.view.node);
    }
    this.#quiet();
    this.#drafts.get(id).update(news);
    if (news.add || news.text) this.#unfold(id);
  }

  /** What the model thinks stands open as long as it is this that grows. */
  #unfold(growing) {
    for (const [id, { view }] of this.#drafts) view.unfold(id === growing);
  }

  #dropDraft(id) {
    this.#drafts.get(id)?.settle().node.remove();
    this.#drafts.delete(id);
  }

  #sign() {
    clearTimeout(this.#typing);
    this.#typing = setTimeout(() => {
      this.#typing = 0;
      this.#on.changed();
    }, TYPING);
  }

  #quiet() {
    clearTimeout(this.#typing);
    this.#typing = 0;
  }
}
