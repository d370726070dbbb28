// The browser's storage, if available; without it the page works, but forgets.

function quietly(work, otherwise) {
  try {
    return work();
  } catch {
    return otherwise;
  }
}

export const store = {
  get: (key, otherwise = null) => quietly(() => JSON.parse(localStorage.getItem(key)) ?? otherwise, otherwise),
  put: (key, value) => quietly(() => localStorage.setItem(key, JSON.stringify(value))),
  remove: (key) => quietly(() => localStorage.removeItem(key)),
  all: (prefix) =>
    quietly(() => Object.keys(localStorage).filter((key) => key.startsWith(prefix)).map((key) => [key, store.get(key)]), []),
};
