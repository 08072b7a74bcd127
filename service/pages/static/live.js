// Keeps a page up to date: fetches it again and replaces the parts that changed.

/** The least time between two fetches, and the most that one may take. */
const LEAST_MS = 2000;
const ANSWER_MS = 8000;

/** A page whose stream is open fetches itself this often without an event: its times are relative, and streams get stuck. */
const CHECK_MS = 20_000;

const bar = document.getElementById("live");
const words = document.getElementById("live-text");

function state(name, text) {
  bar.hidden = false;
  bar.className = `live ${name}`;
  if (words.textContent !== text) words.textContent = text;
}

function parsed(text) {
  return new DOMParser().parseFromString(text, "text/html");
}

/** The key by which an element is found again in the next document; a link without an id is found by its target. */
function key(one) {
  return one.id || one.dataset.cancel || one.getAttribute("href");
}

/**
 * Replaces each live part by that of the new document, and restores focus and scroll positions. A part with selected text
 * stays as it is. Returns whether there was none.
 */
function swap(fresh) {
  const selection = getSelection();
  let isWhole = true;
  for (const old of document.querySelectorAll("[data-live]")) {
    const found = fresh.getElementById(old.id);
    if (!found || found.innerHTML === old.innerHTML) continue;
    if (!selection.isCollapsed && selection.containsNode(old, true)) {
      isWhole = false;
      continue;
    }
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const place = focused && key(focused);
    const scrolled = [...old.querySelectorAll(".scroll[id]")].map((one) => [one.id, one.scrollLeft, one.scrollTop]);
    old.replaceChildren(...document.adoptNode(found).childNodes);
    for (const [id, left, top] of scrolled) document.getElementById(id)?.scrollTo(left, top);
    if (!place || focused === old) continue;
    const again = [...old.querySelectorAll("a, button, [tabindex]")].find((one) => key(one) === place);
    (again ?? old).focus({ preventScroll: true });
  }
  return isWhole;
}

/**
 * Keeps the page at this URL up to date. `events` is the URL of the stream that announces changes; without one, or while it
 * is broken, the page polls every `pollMs`. `seen` is called with each new document. A hidden tab does nothing. Returns a
 * function that fetches the page soon. A page `ofSeveral` sessions says which one is gone.
 */
export function follow({ events = null, pollMs = 5000, seen = () => {}, ofSeveral = false }) {
  let source = null;
  let timer = 0;
  let timerMs = 0;
  let due = 0;
  let started = -LEAST_MS;
  let isAsking = false;
  let isOutdated = false;
  let isFailing = false;

  async function refresh() {
    due = 0;
    started = performance.now();
    isAsking = true;
    isOutdated = false;
    const signal = AbortSignal.timeout(ANSWER_MS);
    try {
      const response = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store", signal });
      if (response.status === 404) {
        const name = ofSeveral && parsed(await response.text()).querySelector("[data-session]")?.dataset.session;
        return end(name ? `${name} is deleted or renamed` : "Deleted or renamed");
      }
      if (response.redirected) return end("Signed out");
      if (!response.ok) throw new Error(String(response.status));
      const fresh = parsed(await response.text());
      seen(fresh);
      if (!swap(fresh)) document.addEventListener("selectionchange", soon, { once: true });
      isFailing = false;
    } catch {
      isFailing = true;
      // Over HTTP/1.1 a browser has six connections to a host, and the streams of six windows leave none for a fetch.
      if (signal.aborted) closeStream();
    } finally {
      isAsking = false;
    }
    tell();
    if (isOutdated) soon();
  }

  /** A change announced during a fetch may not be in its answer, and two fetches at once may be answered in either order. */
  function soon() {
    if (isAsking) isOutdated = true;
    else if (!due && !document.hidden) due = setTimeout(refresh, Math.max(0, started + LEAST_MS - performance.now()));
  }

  /** Says how the page is kept up to date, and polls accordingly. */
  function tell() {
    if (document.hidden) return;
    const isLive = source?.readyState === EventSource.OPEN;
    poll(isLive && !isFailing ? CHECK_MS : pollMs);
    if (isFailing) state("off", "No answer, trying again");
    else state("on", isLive ? "Live" : `Every ${pollMs / 1000} s`);
  }

  function poll(ms) {
    if (ms === timerMs) return;
    clearInterval(timer);
    timerMs = ms;
    timer = ms && setInterval(() => isAsking || soon(), ms);
  }

  function open() {
    if (!events) return tell();
    poll(pollMs);
    source = new EventSource(events);
    source.addEventListener("session", soon);
    source.addEventListener("open", tell);
    source.addEventListener("error", tell);
  }

  function closeStream() {
    source?.close();
    source = null;
  }

  function close() {
    closeStream();
    poll(0);
    clearTimeout(due);
    due = 0;
  }

  function shown() {
    close();
    if (document.hidden) return;
    open();
    soon();
  }

  function end(text) {
    close();
    document.removeEventListener("visibilitychange", shown);
    state("off", text);
  }

  document.addEventListener("visibilitychange", shown);
  if (!document.hidden) open();
  return soon;
}
