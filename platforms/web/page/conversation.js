// The open conversation: its rows, the answers being written, and its event stream.

import { Draft } from "./draft.js";
import { Stream, get } from "./net.js";
import { RowView } from "./rows.js";

const FIRST = 100; // rows that the stream sends at first
const MOST = 5_000; // maximum rows per request for older messages
const TYPING = 8_000; // time for which a typing sign is shown
const FADE = 600; // time for which a finished draft waits for the row that replaces it

const isRunning = ({ author, row }) => author === "user" && row.state === "running";

export class Conversation {
  loaded = false;
  #parts;
  #on;
  #rows = new Map(); // id → view, in the order of the log
  #drafts = new Map();
  #typing = 0;
  #asked = FIRST;
  #whole = false; // the first row shown is the first one there is
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

  /** True if the agent waits for an answer to a question. */
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

  /** True if there may be older rows. Some stored rows are not shown, so a full page may have fewer
      rows than requested. */
  get hasEarlier() {
    return this.loaded && !this.#whole && this.#rows.size >= this.#asked * 0.9;
  }

  /** Load older rows; return a function that shows them. */
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

  /** Remove what was withdrawn while the page was not connected. */
  #ready({ drafts, rows }) {
    for (const id of this.#drafts.keys()) if (!drafts.includes(id)) this.#dropDraft(id);
    for (const { id, seq } of this.rows) if (seq >= rows.first && !rows.ids.includes(id)) this.#remove(id);
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
    if (row.replyTo && this.#before(view)?.id !== row.replyTo) view.quote(this.#rows.get(row.replyTo));
    this.#on.row(row, this.loaded);
  }

  /** Insert a view by its number; almost always at the end. */
  #insert(view) {
    const later = [];
    const views = [...this.#rows.entries()];
    while (views.length && views.at(-1)[1].seq > view.seq) later.unshift(views.pop());
    this.#parts.log.insertBefore(view.node, later[0]?.[1].node ?? null);
    for (const [id] of later) this.#rows.delete(id);
    this.#rows.set(view.id, view);
    for (const [id, other] of later) this.#rows.set(id, other);
  }

  /** The message above a view, without thoughts. */
  #before(view) {
    const { rows } = this;
    return rows.slice(0, rows.indexOf(view)).findLast(({ author }) => author !== "thoughts");
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
      // The posted message arrives in a moment; removing the text before would flicker.
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

  /** Thoughts are open while they are growing. */
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
