// Files chosen for the next message: uploaded at once, referred to by the message that follows.

import { element, icon } from "./markdown.js";
import { upload } from "./net.js";

const MOST = 20;
const LARGEST = 15_000_000;

export class Attached {
  #list;
  #changed;
  #say;
  #files = []; // {name, type, size, ref, state, node}

  /** `changed(failed)` is called after every change, `say(sentence)` for every problem. */
  constructor(list, changed, say) {
    this.#list = list;
    this.#changed = changed;
    this.#say = say;
    list.addEventListener("click", (event) => {
      const node = event.target.closest("button")?.closest("li");
      if (!node) return;
      this.#files.find((file) => file.node === node)?.abort.abort();
      this.#files = this.#files.filter((file) => file.node !== node);
      this.#show();
    });
  }

  /** True if there is at least one file and all of them have been uploaded. */
  get ready() {
    return this.#files.length > 0 && !this.busy;
  }

  get busy() {
    return this.#files.some(({ ref }) => !ref);
  }

  /** Return the chosen files and start with none. */
  take() {
    const taken = this.#files.map(({ ref, name, type }) => ({ ref, name, type }));
    this.clear();
    return taken;
  }

  clear() {
    for (const { abort } of this.#files) abort.abort();
    this.#files = [];
    this.#show();
  }

  add(chat, files) {
    for (const file of files) {
      if (this.#files.length === MOST) {
        this.#say(`A message can have up to ${MOST} files.`);
        break;
      }
      if (file.size > LARGEST) this.#say(`${file.name} is too large: a file can have up to ${LARGEST / 1e6} MB.`);
      else if (file.size === 0) this.#say(`${file.name} is empty.`);
      else this.#begin(chat, file);
    }
    this.#show();
  }

  async #begin(chat, file) {
    const close = element("button", { type: "button", class: "icon", "aria-label": `Remove ${file.name}` }, icon("close"));
    const node = element("li", { class: "chip busy" }, icon("file"), element("span", { class: "chip-name", dir: "auto" }, file.name), close);
    const type = /^[\w.+-]+\/[\w.+-]+$/.test(file.type) ? file.type : "application/octet-stream";
    const entry = { name: file.name.slice(0, 255), type, ref: "", node, abort: new AbortController() };
    this.#files.push(entry);
    try {
      const { ref } = await upload(`/web/chats/${chat}/files`, file, entry.abort.signal);
      entry.ref = ref;
      node.classList.remove("busy");
    } catch (error) {
      if (!this.#files.includes(entry)) return;
      this.#files = this.#files.filter((other) => other !== entry);
      this.#say(`${file.name} was not attached. ${error.message}`);
      this.#show(true);
      return;
    }
    this.#show();
  }

  #show(failed = false) {
    this.#list.replaceChildren(...this.#files.map(({ node }) => node));
    this.#list.hidden = this.#files.length === 0;
    this.#changed(failed);
  }
}
