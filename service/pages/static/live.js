// Keeps a page as the server would write it now: fetches the page again and puts in what changed.

const LEAST_MS = 2000;

const bar = document.getElementById("live");
const words = document.getElementById("live-text");

function state(name, text) {
  bar.hidden = false;
  bar.className = `live ${name}`;
  if (words.textContent !== text) words.textContent = text;
}

/** By which an element is found again in the next document: links without an id by where they lead. */
function key(one) {
  return one.id || one.dataset.cancel || one.getAttribute("href");
}

/** Puts each live part of the new document in the place of the old one. What has the focus keeps it. */
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
 * Follows the page at this address. `events` is the stream that says when something is new; while there is none, or it is
 * broken, the page asks each `pollMs`. `seen` is called with each new document. Nothing happens while the tab is hidden.
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
      // An open stream may have nothing more to tell.
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
