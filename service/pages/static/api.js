// Calls of the service's own API, and the same calls as curl commands.

/** Resolves to {ok, told}: the answer, or a sentence that says why the call failed. */
export async function call(method, path, body) {
  try {
    const headers = { accept: "application/json" };
    if (body !== undefined) headers["content-type"] = "application/json";
    const response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    const told = response.status === 204 ? null : await response.json();
    return response.ok ? { ok: true, told } : { ok: false, told: told.detail ?? told.title };
  } catch {
    return { ok: false, told: "The service does not answer." };
  }
}

/** Escapes the characters that turn the direction of what follows, as the server's tables do: valid in JSON, too. */
export function straight(text) {
  return text.replace(/[\u202a-\u202e\u2066-\u2069]/g, (one) => `\\u${one.charCodeAt(0).toString(16)}`);
}

export function curl(url, body) {
  const key = document.body.dataset.keyed === undefined ? "" : ' -H "Authorization: Bearer $OKL_KEY"';
  return `curl ${url}${key} --json '${straight(JSON.stringify(body)).replaceAll("'", "'\\''")}'`;
}

export function say(node, text, isBad = false) {
  node.textContent = straight(text);
  node.classList.toggle("bad", isBad);
}

/** Does what a button asks for, once at a time. A button that is really disabled would lose the focus. */
export async function once(button, work) {
  if (button.ariaDisabled) return;
  button.ariaDisabled = "true";
  try {
    await work();
  } finally {
    button.ariaDisabled = null;
  }
}

/** Handles a form's submission, one call at a time. */
export function onSubmit(form, handle) {
  const button = form.querySelector("button");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    once(button, () => handle(new FormData(form)));
  });
  // Pages are served with the button disabled: without this handler, the form would be submitted to the page itself.
  button.disabled = false;
}

/** The form that deletes a session; the browser checks the typed name against the pattern. */
export function deleteForm() {
  const form = document.getElementById("delete-form");
  onSubmit(form, async () => {
    const { ok, told } = await call("DELETE", form.dataset.path);
    if (ok) location.assign("/");
    else say(document.getElementById("delete-told"), told, true);
  });
}
