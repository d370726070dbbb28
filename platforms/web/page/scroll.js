// Keeps the newest words in view as long as the reader is at the bottom, and lets go otherwise.

const NEAR = 48; // pixels that still count as the bottom

export class Scroll {
  #pinned = true;
  #box;
  #jump;

  constructor(box, content, jump) {
    this.#box = box;
    this.#jump = jump;
    box.addEventListener("scroll", () => this.#look(), { passive: true });
    jump.addEventListener("click", () => this.toBottom());
    const watcher = new ResizeObserver(() => this.follow());
    watcher.observe(content);
    watcher.observe(box);
  }

  /** Something was added. */
  follow() {
    if (this.#pinned) this.#box.scrollTop = this.#box.scrollHeight;
    else this.#look();
  }

  toBottom() {
    this.#pinned = true;
    this.follow();
    this.#look();
  }

  /** Add content above what is in view without moving it. */
  keeping(work) {
    const below = this.#box.scrollHeight - this.#box.scrollTop;
    this.#pinned = false;
    work();
    this.#box.scrollTop = this.#box.scrollHeight - below;
    this.#look();
  }

  #look() {
    const { scrollTop, scrollHeight, clientHeight } = this.#box;
    this.#pinned = scrollHeight - scrollTop - clientHeight < NEAR;
    this.#jump.hidden = this.#pinned;
  }
}
