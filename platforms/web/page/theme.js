// Runs before the page is painted, so that a chosen theme does not flash up in the other one.
try {
  const theme = localStorage.getItem("holdfast.theme")?.replaceAll("\"", "");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the page follows the system.
}
