// A link clicked on another site arrives without our cookie, although the browser has it: ask from
// here, where it is sent, and go in if we are known.
const answer = await fetch("/web/session", { cache: "no-store" }).catch(() => null);
if (answer && answer.ok) location.replace("/" + location.hash);
