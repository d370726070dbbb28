// Connection to the daemon: requests with the CSRF token, and an event stream that reconnects.

const SILENCE = 45_000; // longer than three keepalives: the connection is dead
const LONGEST_WAIT = 8_000;

/** A request that was refused, or not answered at all (status 0). */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }

  /** True if the same request may succeed later. */
  get passing() {
    return this.status === 0 || this.status >= 500 || this.status === 429;
  }
}

let csrf = null;

async function token() {
  csrf ??= (await call("GET", "/web/session")).csrf;
  return csrf;
}

async function call(method, path, body, headers = {}, signal = AbortSignal.timeout(30_000)) {
  const raw = body instanceof Blob;
  let response;
  try {
    response = await fetch(path, {
      method,
      cache: "no-store",
      headers: body === undefined ? headers : { "content-type": raw ? "application/octet-stream" : "application/json", ...headers },
      body: body === undefined || raw ? body : JSON.stringify(body),
      signal,
    });
    if (response.status === 204) return null;
    const data = await response.json();
    if (response.ok) return data;
    throw new Refused(response.status, data.error?.message ?? "Holdfast refused this request.");
  } catch (error) {
    if (error instanceof Refused) throw error;
    throw new Refused(response && response.status < 500 ? 500 : 0, "Holdfast cannot be reached right now.");
  }
}

export const get = (path) => call("GET", path);

/** Send a changing request; an outdated CSRF token is fetched again once. */
export async function change(method, path, body, signal) {
  try {
    return await call(method, path, body, { "x-holdfast-csrf": await token() }, signal);
  } catch (error) {
    const stale = csrf !== null && error.status === 403;
    if (stale || error.status === 401) csrf = null;
    if (!stale) throw error;
    return call(method, path, body, { "x-holdfast-csrf": await token() }, signal);
  }
}

/** Upload a file, without a time limit. */
export const upload = (path, file, signal) => change("POST", path, file, signal);

/** Return a unique id. */
export function newId(length = 20) {
  const letters = "abcdefghijkmnpqrstuvwxyz23456789";
  return Array.from(crypto.getRandomValues(new Uint8Array(length)), (byte) => letters[byte % 32]).join("");
}

/** The event stream of one conversation. Calls `on.event(name, data)` and `on.state(word)` with
    "open", "lost" or "refused"; reconnects by itself and continues after the last row received. */
export class Stream {
  #last = 0;
  #waited = 500;
  #ended = false;
  #abort = null;
  #wake = () => {};

  constructor(chat, on) {
    this.chat = chat;
    this.on = on;
    this.#run();
  }

  end() {
    this.#ended = true;
    this.#abort?.abort();
    this.#wake();
  }

  /** Reconnect at once instead of waiting. */
  hurry() {
    this.#waited = 500;
    this.#wake();
  }

  async #run() {
    while (!this.#ended) {
      const status = await this.#read().catch(() => 0);
      if (this.#ended) return;
      if (status === 401) {
        this.on.state("refused");
        return;
      }
      this.on.state("lost");
      await new Promise((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, this.#waited * (0.8 + Math.random() * 0.4));
      });
      this.#waited = Math.min(this.#waited * 1.7, LONGEST_WAIT);
    }
  }

  async #read() {
    this.#abort = new AbortController();
    const dog = new WatchDog(() => this.#abort.abort());
    try {
      const response = await fetch(`/web/chats/${this.chat}/events?after=${this.#last}`, {
        cache: "no-store",
        headers: { accept: "text/event-stream" },
        signal: this.#abort.signal,
      });
      if (!response.ok) return response.status;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done || this.#ended) return 200;
        dog.pat();
        rest = this.#take(rest + value);
      }
    } finally {
      dog.leave();
    }
  }

  /** Handle the complete events of a chunk and return the incomplete rest. */
  #take(text) {
    const events = text.split("\n\n");
    for (const event of events.slice(0, -1)) {
      const fields = new Map();
      for (const line of event.split("\n")) {
        const colon = line.indexOf(": ");
        if (colon > 0) fields.set(line.slice(0, colon), line.slice(colon + 2));
      }
      if (fields.has("id")) this.#last = Math.max(this.#last, Number(fields.get("id")));
      if (fields.get("event") === "ready") {
        this.#waited = 500;
        this.on.state("open");
      }
      if (fields.has("event")) this.#hand(fields.get("event"), fields.get("data"));
    }
    return events.at(-1);
  }

  /** Hand over an event. One that cannot be shown does not end the stream: after a reconnect it
      would arrive again, and end the stream again. */
  #hand(name, data) {
    try {
      this.on.event(name, JSON.parse(data));
    } catch (error) {
      console.warn(`An event "${name}" could not be shown:`, error);
    }
  }
}

/** Calls back after too long without a `pat()`. */
class WatchDog {
  #timer;

  constructor(bark) {
    this.bark = bark;
    this.pat();
  }

  pat() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.bark, SILENCE);
  }

  leave() {
    clearTimeout(this.#timer);
  }
}
