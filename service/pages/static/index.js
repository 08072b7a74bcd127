// The list of sessions, kept up to date, and the form for a new session.
import { call, curl, onSubmit, say } from "./api.js";
import { follow } from "./live.js";

follow({ pollMs: 3000 });

const form = document.getElementById("create-form");

/** A label as a JSON value: text that is a number or a boolean in JSON becomes one. */
function label(text) {
  try {
    const found = JSON.parse(text);
    return Number.isFinite(found) || typeof found === "boolean" ? found : text;
  } catch {
    return text;
  }
}

function asked() {
  const given = new FormData(form);
  const body = { name: given.get("name") };
  const labels = given.get("labels").split(",").map((one) => one.trim()).filter(Boolean);
  if (labels.length) body.labels = labels.map(label);
  if (given.get("learner")) body.learner = given.get("learner");
  return body;
}

function show() {
  document.getElementById("create-curl").textContent = curl(`${form.dataset.base}/sessions`, asked());
}

// A key with fewer rights gets no form.
if (form) {
  form.addEventListener("input", show);
  show();
  onSubmit(form, async () => {
    const { ok, told } = await call("POST", "/sessions", asked());
    if (ok) location.assign(`/sessions/${encodeURIComponent(told.name)}/page`);
    else say(document.getElementById("create-told"), told, true);
  });
}
