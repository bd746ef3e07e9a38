// Keeps the part of a page that says data-fresh up to date. Without it the page has a link that does the same.
(() => {
  const part = document.querySelector("[data-fresh]");
  if (!part) return;
  const busy = () => document.hidden || part.querySelector("details[open]") || part.contains(document.activeElement);
  const refresh = async () => {
    if (busy()) return;
    try {
      const answer = await fetch(part.dataset.fresh, { credentials: "same-origin", redirect: "error" });
      if (answer.ok && !busy()) part.innerHTML = await answer.text(); // escaped by the server, like the page itself
    } catch { /* the next time */ }
  };
  setInterval(refresh, 10000);
})();
