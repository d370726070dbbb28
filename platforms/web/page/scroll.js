// Keeps the newest text in view while the reader is at the bottom, and stops when they scroll up.

const NEAR = 48; // pixels that still count as the bottom

export class Scroll {
  #pinned = true;
  #at = 0; // scroll position at the last check
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

  /** Handle added content. */
  follow() {
    if (this.#pinned) this.#box.scrollTop = this.#box.scrollHeight;
    this.#look();
  }

  toBottom() {
    this.#pinned = true;
    this.follow();
  }

  /** Add content above the view without moving the view. */
  keeping(work) {
    const below = this.#box.scrollHeight - this.#box.scrollTop;
    this.#pinned = false;
    work();
    this.#box.scrollTop = this.#box.scrollHeight - below;
    this.#look();
  }

  /** Scrolling up stops following. Text that has grown since also moves the end away. */
  #look() {
    const { scrollTop, scrollHeight, clientHeight } = this.#box;
    const near = scrollHeight - scrollTop - clientHeight < NEAR;
    if (near) this.#pinned = true;
    else if (scrollTop < this.#at) this.#pinned = false;
    this.#at = scrollTop;
    this.#jump.hidden = this.#pinned;
  }
}
