// Keeps a page up to date: fetches it again and replaces the parts that changed.

const LEAST_MS = 2000;

const bar = document.getElementById("live");
const words = document.getElementById("live-text");

function state(name, text) {
  bar.hidden = false;
  bar.className = `live ${name}`;
  if (words.textContent !== text) words.textContent = text;
}

/** The key by which an element is found again in the next document; a link without an id is found by its target. */
function key(one) {
  return one.id || one.dataset.cancel || one.getAttribute("href");
}

/** Replaces each live part by that of the new document, and restores focus and scroll positions. */
export function swap(fresh) {
  for (const old of document.querySelectorAll("[data-live]")) {
    const found = fresh.getElementById(old.id);
    if (!found || found.innerHTML === old.innerHTML) continue;
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const place = focused && key(focused);
    const scrolled = [...old.querySelectorAll(".scroll[id]")].map((one) => [one.id, one.scrollLeft, one.scrollTop]);
    old.replaceChildren(...document.adoptNode(found).childNodes);
    for (const [id, left, top] of scrolled) document.getElementById(id)?.scrollTo(left, top);
    if (!place || focused === old) continue;
    const again = [...old.querySelectorAll("a, button, [tabindex]")].find((one) => key(one) === place);
    (again ?? old).focus({ preventScroll: true });
  }
}

/**
 * Keeps the page at this URL up to date. `events` is the URL of the stream that announces changes; without one, or while it
 * is broken, the page polls every `pollMs`. `seen` is called with each new document. A hidden tab does nothing.
 */
export function follow({ events = null, pollMs = 5000, seen = () => {} }) {
  let source = null;
  let poll = 0;
  let due = 0;
  let started = -LEAST_MS;
  let isOver = false;

  async function refresh() {
    due = 0;
    started = performance.now();
    try {
      const response = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
      if (response.status === 404) return end("Deleted");
      if (response.redirected) return end("Signed out");
      if (!response.ok) throw new Error(String(response.status));
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      seen(fresh);
      swap(fresh);
      state("on", source?.readyState === EventSource.OPEN ? "Live" : `Every ${pollMs / 1000} s`);
    } catch {
      state("off", "No answer, trying again");
      // Retry by timer, since an open event stream may announce no further change.
      if (!poll && !due && !isOver && !document.hidden) due = setTimeout(refresh, pollMs);
    }
  }

  function soon() {
    if (due || isOver) return;
    due = setTimeout(refresh, Math.max(0, started + LEAST_MS - performance.now()));
  }

  function startPoll() {
    if (poll || isOver) return;
    poll = setInterval(soon, pollMs);
    state("on", `Every ${pollMs / 1000} s`);
  }

  function stopPoll() {
    clearInterval(poll);
    poll = 0;
  }

  function open() {
    if (isOver) return;
    if (!events) return startPoll();
    source = new EventSource(events);
    source.addEventListener("session", soon);
    source.addEventListener("open", () => {
      stopPoll();
      state("on", "Live");
    });
    source.addEventListener("error", startPoll);
  }

  function close() {
    source?.close();
    source = null;
    stopPoll();
    clearTimeout(due);
    due = 0;
  }

  function end(text) {
    isOver = true;
    close();
    state("off", text);
  }

  document.addEventListener("visibilitychange", () => {
    close();
    if (document.hidden) return;
    open();
    soon();
  });
  if (!document.hidden) open();
  return { soon, end };
}
