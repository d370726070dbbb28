// Messages on their way to the daemon. Each stays in the browser's storage until it was accepted, and
// keeps its id when it is sent again, so that it is stored once, whatever is lost in between.

import { change, newId } from "./net.js";
import { store } from "./storage.js";

const KEY = "holdfast.unsent.";
const SHORTEST = 1_500; // milliseconds until the first automatic retry
const LONGEST = 30_000;

export class Outbox {
  /** Entries: {id, chat, text, files, at, state, reason}; `state` is "waiting", "sending", "sent" or
      "refused", and `reason` says why the message was refused. */
  entries = new Map();
  #sending = false;
  #pause = SHORTEST;
  #timer = 0;
  #changed;

  /** `changed(entry)` is called whenever the state of an entry changes. */
  constructor(changed) {
    this.#changed = changed;
    for (const [key, entry] of store.all(KEY)) {
      if (entry?.id && key === KEY + entry.id) this.entries.set(entry.id, { ...entry, state: "waiting" });
    }
  }

  of(chat) {
    return [...this.entries.values()].filter((entry) => entry.chat === chat).sort((a, b) => a.at - b.at);
  }

  add(chat, text, files = []) {
    const entry = { id: newId(), chat, text, files, at: Date.now() };
    store.put(KEY + entry.id, entry);
    this.entries.set(entry.id, { ...entry, state: "waiting" });
    this.#changed(this.entries.get(entry.id));
    this.flush();
  }

  /** Remove a message that is in the transcript or was discarded. */
  drop(id) {
    const entry = this.entries.get(id);
    if (!entry) return;
    store.remove(KEY + id);
    this.entries.delete(id);
    entry.state = "gone";
    this.#changed(entry);
  }

  /** Send a refused message again. */
  again(id) {
    const entry = this.entries.get(id);
    if (entry) this.#set(entry, "waiting");
    this.flush();
  }

  /** Send waiting messages one after the other, to keep their order. */
  async flush() {
    if (this.#sending) return;
    this.#sending = true;
    clearTimeout(this.#timer);
    try {
      for (let entry = this.#next(); entry; entry = this.#next()) {
        if (!(await this.#send(entry))) {
          this.#hold(entry.reason);
          this.#timer = setTimeout(() => this.flush(), this.#pause);
          this.#pause = Math.min(this.#pause * 2, LONGEST);
          return;
        }
        this.#pause = SHORTEST;
      }
    } finally {
      this.#sending = false;
    }
  }

  /** Messages after one that cannot be sent wait for the same reason. */
  #hold(reason) {
    for (const entry of this.entries.values()) if (entry.state === "waiting") this.#set(entry, "waiting", reason);
  }

  #next() {
    return [...this.entries.values()].filter((entry) => entry.state === "waiting").sort((a, b) => a.at - b.at)[0];
  }

  async #send(entry) {
    this.#set(entry, "sending");
    try {
      await change("POST", `/web/chats/${entry.chat}/messages`, { id: entry.id, text: entry.text, files: entry.files ?? [] });
      store.remove(KEY + entry.id);
      if (this.entries.has(entry.id)) this.#set(entry, "sent");
      return true;
    } catch (error) {
      if (!this.entries.has(entry.id)) return true; // its row has arrived: it was accepted after all
      const passing = error.passing || error.status === 401;
      this.#set(entry, passing ? "waiting" : "refused", error.message);
      return !passing;
    }
  }

  #set(entry, state, reason = "") {
    entry.state = state;
    entry.reason = reason;
    this.#changed(entry);
  }
}
