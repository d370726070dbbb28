// The box one writes in. It grows with its text and remembers what was not sent, per conversation.

import { store } from "./storage.js";

const KEY = "holdfast.draft.";
const LINE = 24; // pixels, as in style.css
const PADDING = 16;
const MOST_LINES = 12;

export class Composer {
  #box;
  #button;
  #chat = "";

  /** `send(text)` is called with what was written. */
  constructor(form, box, button, send) {
    this.#box = box;
    this.#button = button;
    box.addEventListener("input", () => this.#changed());
    box.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.altKey || event.isComposing) return;
      event.preventDefault();
      form.requestSubmit();
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const text = box.value;
      if (!text.trim()) return;
      this.write("");
      send(text);
    });
  }

  open(chat) {
    this.#chat = chat;
    this.write(store.get(KEY + chat, ""));
  }

  write(text) {
    this.#box.value = text;
    this.#changed();
  }

  focus() {
    this.#box.focus({ preventScroll: true });
  }

  #changed() {
    const { value } = this.#box;
    this.#button.disabled = !value.trim();
    if (value) store.put(KEY + this.#chat, value);
    else store.remove(KEY + this.#chat);
    this.#box.rows = 1;
    const lines = Math.round((this.#box.scrollHeight - PADDING) / LINE);
    this.#box.rows = Math.min(Math.max(lines, 1), MOST_LINES);
  }
}
