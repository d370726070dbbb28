// The message box. It grows with its text and remembers unsent text per conversation.

import { store } from "./storage.js";

const KEY = "holdfast.draft.";
const LINE = 24; // pixels, as in style.css
const PADDING = 16;
const MOST_LINES = 12;

export class Composer {
  #box;
  #button;
  #files;
  #form;
  #chat = "";
  #soon = false;

  /** `send(text, files)` is called with the text and the attached files. */
  constructor(form, box, button, files, send) {
    this.#form = form;
    this.#box = box;
    this.#button = button;
    this.#files = files;
    box.addEventListener("input", () => this.#changed());
    box.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.altKey || event.isComposing) return;
      event.preventDefault();
      form.requestSubmit();
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const text = box.value;
      this.#soon = files.busy;
      if (!this.#whole) return;
      const attached = files.take();
      this.write("");
      send(text, attached);
    });
  }

  /** True if there is something to send and no upload is in progress. */
  get #whole() {
    return !this.#files.busy && (this.#files.ready || this.#box.value.trim() !== "");
  }

  open(chat) {
    if (chat !== this.#chat) this.#files.clear();
    this.#soon = false;
    this.#chat = chat;
    this.write(store.get(KEY + chat, ""));
  }

  write(text) {
    this.#box.value = text;
    this.#changed();
  }

  /** Handle a change of the attached files; a message sent during an upload goes out after it. */
  refresh(failed = false) {
    this.#button.disabled = !this.#whole;
    if (failed) this.#soon = false;
    if (this.#soon && this.#whole) this.#form.requestSubmit();
  }

  focus() {
    this.#box.focus({ preventScroll: true });
  }

  #changed() {
    const { value } = this.#box;
    this.refresh();
    if (value) store.put(KEY + this.#chat, value);
    else store.remove(KEY + this.#chat);
    this.#box.rows = 1;
    const lines = Math.round((this.#box.scrollHeight - PADDING) / LINE);
    this.#box.rows = Math.min(Math.max(lines, 1), MOST_LINES);
  }
}
