// The list of conversations, with marks on those that have news.

import { get } from "./net.js";
import { element } from "./markdown.js";
import { store } from "./storage.js";

const SEEN = "holdfast.seen";
const PAUSE = 300; // milliseconds for which changes are collected before the list is read

const UNITS = [["year", 31_536_000], ["month", 2_592_000], ["week", 604_800], ["day", 86_400], ["hour", 3_600], ["minute", 60]];
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });

/** Times of the newest message seen, by conversation. */
const readSeen = () => new Map(Object.entries(store.get(SEEN, {})));

export class Chats {
  list = [];
  #node;
  #empty;
  #current = "";
  #changed;
  #timer = 0;

  /** `changed()` is called after the list was read. */
  constructor(node, empty, changed) {
    this.#node = node;
    this.#empty = empty;
    this.#changed = changed;
  }

  title(chat) {
    return this.list.find((entry) => entry.id === chat)?.title || "";
  }

  get unseen() {
    return this.list.filter((entry) => this.#isNew(entry)).length;
  }

  select(chat) {
    this.#current = chat;
    this.#see();
    this.#show();
  }

  /** Read the list soon; close calls count once. */
  soon() {
    this.#timer ||= setTimeout(() => {
      this.#timer = 0;
      this.read();
    }, PAUSE);
  }

  async read() {
    try {
      this.list = (await get("/web/chats")).chats;
    } catch {
      return; // the stream reports the reconnect, and then the list is read again
    }
    this.#see();
    this.#show();
    this.#changed();
  }

  /** Mark the open conversation as seen. */
  #see() {
    const entry = this.list.find(({ id }) => id === this.#current);
    if (!entry || document.hidden) return;
    const seen = readSeen();
    if ((seen.get(entry.id) ?? 0) >= entry.at) return;
    seen.set(entry.id, entry.at);
    store.put(SEEN, Object.fromEntries(seen));
  }

  #isNew({ id, at }) {
    const seen = readSeen().get(id);
    return id !== this.#current && seen !== undefined && at > seen;
  }

  #show() {
    this.#empty.hidden = this.list.length > 0;
    this.#node.replaceChildren(
      ...this.list.map((entry) => {
        const fresh = this.#isNew(entry);
        const link = element(
          "a",
          { href: `#/c/${entry.id}`, "aria-current": entry.id === this.#current && "page", class: fresh && "fresh" },
          element("span", { class: "chat-title", dir: "auto" }, entry.title || "New conversation"),
          element("span", { class: "chat-time" }, ago(entry.at)),
        );
        if (fresh) link.append(element("span", { class: "hidden" }, "new messages"));
        return element("li", {}, link);
      }),
    );
  }
}

function ago(at) {
  const seconds = (Date.now() - at) / 1000;
  const [unit, size] = UNITS.find(([, length]) => seconds >= length) ?? ["second", 0];
  return size ? relative.format(-Math.floor(seconds / size), unit) : "now";
}
