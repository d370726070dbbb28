// Runs before the first paint, so that the chosen theme is shown from the start.
try {
  const theme = localStorage.getItem("holdfast.theme")?.replaceAll("\"", "");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the page follows the system.
}
