// A link clicked on another site is opened without the cookie, although the browser has it: check
// from here, where the cookie is sent, and enter if signed in.
const answer = await fetch("/web/session", { cache: "no-store" }).catch(() => null);
if (answer && answer.ok) location.replace("/" + location.hash);
