// Keeps the newest words in view as long as the reader is at the bottom, and lets go otherwise.

const NEAR = 48; // pixels that still count as the bottom

export class Scroll {
  #pinned = true;
  #at = 0; // where the box stood when it was last looked at
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
    this.#look();
  }

  toBottom() {
    this.#pinned = true;
    this.follow();
  }

  /** Add content above what is in view without moving it. */
  keeping(work) {
    const below = this.#box.scrollHeight - this.#box.scrollTop;
    this.#pinned = false;
    work();
    this.#box.scrollTop = this.#box.scrollHeight - below;
    this.#look();
  }

  /** A reader who goes up lets go. Text that grew since the box moved puts the end far away, too. */
  #look() {
    const { scrollTop, scrollHeight, clientHeight } = this.#box;
    const near = scrollHeight - scrollTop - clientHeight < NEAR;
    if (near) this.#pinned = true;
    else if (scrollTop < this.#at) this.#pinned = false;
    this.#at = scrollTop;
    this.#jump.hidden = this.#pinned;
  }
}
