// An answer being written, shown smoothly although it arrives in chunks.

import { RowView } from "./rows.js";

const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class Draft {
  text = "";
  status = "";
  leaving = false; // withdrawn, and shown only until its replacement arrives
  #shown = 0;
  #cost = 0; // duration of the last step in milliseconds
  #waiting = false;
  #settled = false;
  #grown;

  /** `grown()` is called after the view has grown. */
  constructor(id, grown) {
    this.view = new RowView(id, "answer");
    this.#grown = grown;
  }

  /** Apply an event of the stream: append `add`, or replace by `text`. */
  update({ add, text, status }) {
    this.leaving = false;
    const first = !this.text && text !== undefined;
    this.text = text ?? this.text + add;
    this.status = status ?? "";
    this.#shown = Math.min(this.#shown, this.text.length);
    if (first || calm.matches || document.hidden) {
      this.#shown = this.text.length;
      this.#show();
    } else {
      this.#soon();
    }
  }

  /** Withdraw: the text stays for the moment until its row arrives, the status does not. */
  leave() {
    this.leaving = true;
    this.status = "";
    this.#soon();
  }

  /** Stop animating: the view becomes a row of the transcript. */
  settle() {
    this.#settled = true;
    return this.view;
  }

  /** Schedule the next step; the longer steps take, the longer the pause between them. */
  #soon() {
    if (this.#waiting) return;
    this.#waiting = true;
    setTimeout(() => requestAnimationFrame(() => this.#step()), this.#cost > 4 ? this.#cost * 3 : 0);
  }

  #step() {
    this.#waiting = false;
    const missing = this.text.length - this.#shown;
    // The further behind, the faster: a chunk is caught up with in about a sixth of a second.
    if (missing > 0) this.#shown = whole(this.text, this.#shown + Math.max(2, Math.ceil(missing / 6)));
    this.#show();
    if (this.#shown < this.text.length) this.#soon();
  }

  #show() {
    if (this.#settled) return;
    const begun = performance.now();
    this.view.grow(this.text.slice(0, this.#shown), this.status);
    this.#grown();
    this.#cost = performance.now() - begun;
  }
}

/** Never stop between the two halves of a surrogate pair. */
function whole(text, end) {
  const code = text.charCodeAt(end - 1);
  return Math.min(code >= 0xd800 && code <= 0xdbff ? end + 1 : end, text.length);
}
