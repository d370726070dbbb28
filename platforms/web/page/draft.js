// An answer that is being written, shown smoothly although it arrives in pieces.

import { RowView } from "./rows.js";

const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class Draft {
  text = "";
  status = "";
  leaving = false; // it is gone, and only shown until its place is taken
  #shown = 0;
  #frame = 0;
  #grown;

  /** `grown()` is called after the view has become larger. */
  constructor(id, grown) {
    this.view = new RowView(id, "answer");
    this.#grown = grown;
  }

  /** Take what the stream says: `add` to what is there, or the whole `text`. */
  update({ add, text, status }) {
    this.leaving = false;
    const first = !this.text && text !== undefined;
    this.text = text ?? this.text + add;
    this.status = status ?? "";
    if (first || calm.matches || document.hidden) this.#shown = this.text.length;
    this.#shown = Math.min(this.#shown, this.text.length);
    cancelAnimationFrame(this.#frame);
    this.#show();
  }

  /** No more steps: the view goes on as a row of the transcript. */
  settle() {
    cancelAnimationFrame(this.#frame);
    return this.view;
  }

  #show() {
    const missing = this.text.length - this.#shown;
    if (missing > 0) {
      // The further behind, the faster; a piece is caught up with in about a sixth of a second.
      this.#shown = whole(this.text, this.#shown + Math.max(2, Math.ceil(missing / 6)));
    }
    this.view.grow(this.text.slice(0, this.#shown), this.status);
    this.#grown();
    if (this.#shown < this.text.length) this.#frame = requestAnimationFrame(() => this.#show());
  }
}

/** Never stop between the two halves of one character. */
function whole(text, end) {
  const code = text.charCodeAt(end - 1);
  return Math.min(code >= 0xd800 && code <= 0xdbff ? end + 1 : end, text.length);
}
