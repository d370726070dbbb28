// Assembles the page: the open conversation, the actions of its buttons, the title.

import { Attached } from "./attached.js";
import { Chats } from "./chats.js";
import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { change, newId } from "./net.js";
import { Outbox } from "./outbox.js";
import { RowView } from "./rows.js";
import { Scroll } from "./scroll.js";
import { store } from "./storage.js";

const TAKEN = 5_000; // time for which an accepted message waits for its row
const UNWATCHED = 5 * 60_000; // time in the background after which an idle page closes its connection
const THEMES = ["system", "light", "dark"];

const parts = Object.fromEntries([...document.querySelectorAll("[id]")].map((node) => [node.id, node]));

let conversation = null;
let link = "open"; // or "lost"
let missed = 0; // answers that arrived while the page was hidden
const unsentViews = new Map();

const scroll = new Scroll(parts.scroll, parts.column, parts.jump);
const outbox = new Outbox(showUnsent);
const chats = new Chats(parts.chats, parts["chats-empty"], refresh);
const attached = new Attached(parts.files, (failed) => composer?.refresh(failed), toast);
const composer = new Composer(parts.composer, parts["composer-text"], parts.send, attached, (text, files) => {
  outbox.add(conversation.chat, text, files);
  scroll.toBottom();
});

// --- the open conversation ------------------------------------------------------------------------

function route() {
  const match = /^#\/c\/([A-Za-z0-9_-]{4,40})$/.exec(location.hash);
  if (!match) {
    const last = store.get("holdfast.last");
    const chat = location.hash !== "#/new" && last ? last : newId(12);
    history.replaceState(null, "", `#/c/${chat}`);
    open(chat);
    return;
  }
  open(match[1]);
}

function open(chat) {
  if (conversation?.chat === chat) return;
  conversation?.close();
  store.put("holdfast.last", chat);
  conversation = new Conversation(chat, parts, {
    changed: refresh,
    grown: () => scroll.follow(),
    row: tookRow,
    chats: () => chats.soon(),
    state: linkState,
  });
  parts.unsent.replaceChildren();
  unsentViews.clear();
  outbox.of(chat).forEach(showUnsent);
  composer.open(chat);
  chats.select(chat);
  scroll.toBottom();
  drawer(false);
  refresh();
  if (matchMedia("(hover: hover)").matches) composer.focus();
}

// --- display -----------------------------------------------------------------------------

function refresh() {
  if (!conversation) return;
  const { busy, writing, thinking, asking, loaded } = conversation;
  const title = chats.title(conversation.chat) || "New conversation";
  parts.title.textContent = title;
  parts.thinking.hidden = !asking && (writing || !thinking);
  parts.thinking.classList.toggle("asking", asking);
  parts.live.classList.toggle("asking", asking);
  parts["thinking-label"].textContent = asking ? "Waiting for your answer" : "Thinking…";
  parts.stop.hidden = !busy;
  if (!busy) parts.stop.disabled = false;
  parts.earlier.hidden = !conversation.hasEarlier;
  parts.empty.hidden = !loaded || conversation.rows.length > 0 || writing || unsentViews.size > 0;
  markLast();
  const unread = missed || chats.unseen;
  const sign = link === "lost" ? "Reconnecting… " : asking ? "🔐 " : busy ? "✍ " : unread ? `(${unread}) ` : "";
  document.title = `${sign}${title} · Holdfast`;
}

/** Only the last message can be retried, and not while the agent is working. */
function markLast() {
  const last = conversation.busy ? null : conversation.rows.findLast(({ author }) => author !== "user");
  const before = parts.log.querySelector(".row.last");
  if (before === (last?.node ?? null)) return;
  before?.classList.remove("last");
  last?.node.classList.add("last");
}

function tookRow(row, isNew) {
  outbox.drop(row.id);
  if (!isNew) return;
  scroll.follow();
  const view = conversation.find(row.id);
  if (row.author === "user" || view.author === "thoughts") return;
  parts.announce.textContent = view.spoken;
  if (document.hidden) missed += 1;
}

function showUnsent(entry) {
  if (entry.chat !== conversation?.chat) return;
  if (entry.state === "gone" || conversation.has(entry.id)) {
    unsentViews.get(entry.id)?.node.remove();
    unsentViews.delete(entry.id);
  } else {
    if (!unsentViews.has(entry.id)) {
      const view = new RowView(entry.id, "user");
      unsentViews.set(entry.id, view);
      parts.unsent.append(view.node);
    }
    unsentViews.get(entry.id).pending(entry);
    // A command may leave no row; then there is nothing to wait for.
    if (entry.state === "sent") setTimeout(() => outbox.drop(entry.id), TAKEN);
  }
  scroll.follow();
  refresh();
}

function linkState(state) {
  if (state === "refused") {
    location.reload(); // shows the sign-in instructions
    return;
  }
  const back = state === "open" && link === "lost";
  link = state;
  parts["link-state"].textContent = state === "lost" ? "Reconnecting…" : "";
  if (state === "open") {
    outbox.flush();
    chats.soon();
  }
  if (back) parts.announce.textContent = "Reconnected.";
  refresh();
}

function toast(text) {
  parts.toast.textContent = text;
  parts.toast.classList.add("shown");
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => parts.toast.classList.remove("shown"), 6_000);
}

// --- buttons ---------------------------------------------------------------------------

/** Send the action of a button; unlike a command, it is no message of the conversation. */
const act = (action, message = "") => change("POST", `/web/chats/${conversation.chat}/actions`, { id: newId(), action, message });

async function actOnce(action, button) {
  button.disabled = true;
  try {
    await act(action);
  } catch (error) {
    toast(error.message);
  } finally {
    setTimeout(() => (button.disabled = false), 1_500);
  }
}

const deeds = {
  "send-again": (_, row) => outbox.again(row),
  discard: (_, row) => outbox.drop(row),
  unfold: (button) => {
    button.previousElementSibling.classList.remove("folded");
    button.remove();
  },
  resend: (_, row) => outbox.add(conversation.chat, conversation.find(row).text, conversation.find(row).attached),
  show: (button) => conversation.find(button.dataset.row)?.node.focus(),
  retry: (button) => actOnce("retry", button),
  press: async (button, row) => {
    const all = button.parentElement.querySelectorAll("button");
    all.forEach((other) => (other.disabled = true));
    try {
      await act(button.dataset.action, row);
      button.classList.add("pressed");
    } catch (error) {
      toast(error.message);
      all.forEach((other) => (other.disabled = false));
    }
  },
};

parts.column.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-do], button[data-copy]");
  if (!button) return;
  const row = button.closest(".row")?.dataset.id;
  if (button.dataset.copy) copy(button, row);
  else deeds[button.dataset.do](button, row);
});

async function copy(button, row) {
  const text = button.dataset.copy === "code" ? button.closest(".code").querySelector("code").textContent : conversation.find(row).text;
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else copyByHand(text);
  } catch {
    toast("The browser does not allow copying here. Please select the text and copy it yourself.");
    return;
  }
  button.classList.add("copied");
  button.querySelector("use").setAttribute("href", "#i-done");
  parts.announce.textContent = "Copied.";
  setTimeout(() => {
    button.classList.remove("copied");
    button.querySelector("use").setAttribute("href", "#i-copy");
  }, 1_500);
}

/** Plain http from another machine has no clipboard interface; this older way still works there. */
function copyByHand(text) {
  const box = document.createElement("textarea");
  box.value = text;
  box.className = "hidden";
  document.body.append(box);
  box.select();
  document.execCommand("copy");
  box.remove();
}

parts.stop.addEventListener("click", () => actOnce("stop", parts.stop));
parts.skip.addEventListener("click", (event) => {
  event.preventDefault();
  composer.focus();
});
parts.earlier.addEventListener("click", async () => {
  parts.earlier.disabled = true;
  try {
    const show = await conversation.earlier();
    scroll.keeping(show);
  } catch (error) {
    toast(error.message);
  }
  parts.earlier.disabled = false;
  refresh();
});

parts.leave.addEventListener("click", async () => {
  try {
    await change("DELETE", "/web/session");
    location.reload();
  } catch (error) {
    toast(error.message);
  }
});

// --- files -------------------------------------------------------------------------------------

function attach(files) {
  if (files.length) attached.add(conversation.chat, files);
}

parts.clip.addEventListener("click", () => parts.pick.click());
parts.pick.addEventListener("change", () => {
  attach([...parts.pick.files]);
  parts.pick.value = "";
  composer.focus();
});
parts["composer-text"].addEventListener("paste", (event) => {
  const { files } = event.clipboardData;
  if (!files.length || event.clipboardData.types.includes("text/plain")) return; // text that was copied together with a picture of it
  event.preventDefault();
  attach([...files]);
});
const dragsFiles = (event) => event.dataTransfer?.types.includes("Files");
addEventListener("dragover", (event) => {
  if (!dragsFiles(event)) return;
  event.preventDefault();
  document.body.classList.add("dropping");
});
addEventListener("dragleave", (event) => event.relatedTarget ?? document.body.classList.remove("dropping"));
addEventListener("drop", (event) => {
  document.body.classList.remove("dropping");
  if (!dragsFiles(event)) return;
  event.preventDefault();
  attach([...event.dataTransfer.files]);
});

// --- theme, drawer, keys -----------------------------------------------------------------------

function theme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  store.put("holdfast.theme", name);
  parts["theme-label"].textContent = `Theme: ${name}`;
}

parts.theme.addEventListener("click", () => {
  const now = store.get("holdfast.theme", "system");
  theme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
});

function drawer(isOpen) {
  const wasOpen = document.body.classList.contains("drawer");
  document.body.classList.toggle("drawer", isOpen);
  parts.shade.hidden = !isOpen;
  parts.menu.setAttribute("aria-expanded", String(isOpen));
  if (isOpen) parts.new.focus();
  else if (wasOpen) parts.menu.focus();
}

parts.menu.addEventListener("click", () => drawer(!document.body.classList.contains("drawer")));
parts.shade.addEventListener("click", () => drawer(false));
parts.side.addEventListener("click", (event) => {
  if (event.target.closest("a")) drawer(false);
});

addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (document.body.classList.contains("drawer")) drawer(false);
  else if (conversation.busy && document.activeElement !== parts.stop) parts.stop.focus(); // Enter then stops
  else composer.focus();
});

// --- visibility --------------------------------------------------------------------------

let letGo = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(letGo);
  if (document.hidden) {
    // A browser allows only six connections per host, shared by all its tabs.
    letGo = setTimeout(() => conversation.busy || conversation.close(), UNWATCHED);
    return;
  }
  missed = 0;
  conversation.open();
  conversation.hurry();
  chats.soon();
  refresh();
});
addEventListener("online", () => conversation.hurry());
addEventListener("hashchange", route);

theme(store.get("holdfast.theme", "system"));
route();
chats.read();
