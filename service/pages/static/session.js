// The page of a session: its live charts, and its forms.
import { call, curl, deleteForm, onSubmit, once, say, straight } from "./api.js";
import { drawCharts } from "./charts.js";
import { follow } from "./live.js";

const { path, base } = document.getElementById("session").dataset;
const soon = follow({ events: `${path}/events`, pollMs: 5000, seen: drawCharts() });
const byId = (id) => document.getElementById(id);

// -- try it: the JSON is sent; the fields edit it --------------------------------------------------------------------

const tryForm = byId("try-form");
const box = tryForm?.elements.x;

/** Refuses what JSON.parse reads as Infinity, which JSON.stringify would send as null. */
function finite(_, value) {
  if (typeof value === "number" && !Number.isFinite(value)) throw new RangeError("A number is too large.");
  return value;
}

function input() {
  return JSON.parse(box.value, finite);
}

function asked() {
  return { x: input(), wait: tryForm.elements.wait?.checked ?? false };
}

function showCurl() {
  try {
    byId("try-curl").textContent = curl(`${base}${path}/predict`, asked());
    box.setCustomValidity("");
  } catch (error) {
    box.setCustomValidity(error instanceof RangeError ? error.message : "This is not JSON.");
  }
}

/** The object that the fields edit; they replace any other input. */
function record() {
  try {
    const x = input();
    return typeof x === "object" && !Array.isArray(x) ? x : {};
  } catch {
    return {};
  }
}

/** The probability of the label that is forecast, which is the likeliest; `probability` is that of the second of two. */
function sureness({ probability, probabilities }) {
  const all = probabilities ?? (probability === undefined ? [] : [1 - probability, probability]);
  return all.length ? `, probability ${(100 * Math.max(...all)).toFixed(1)} %` : "";
}

function valueOf(field) {
  if (field.value === "") return null;
  if (field.dataset.type === "number") return Number(field.value);
  return field.dataset.type === "boolean" ? field.value === "true" : field.value;
}

// A key with fewer rights gets no such form.
if (tryForm) {
  tryForm.addEventListener("input", (event) => {
    const field = event.target;
    if (field.dataset.field !== undefined) {
      box.value = straight(JSON.stringify({ ...record(), [field.dataset.field]: valueOf(field) }));
    }
    showCurl();
  });
  showCurl();

  onSubmit(tryForm, async () => {
    const body = asked();
    const answer = await call("POST", `${path}/predict`, body);
    byId("try-box").hidden = !answer.ok;
    if (!answer.ok) return say(byId("try-told"), answer.told, true);
    const { told } = answer;
    const forecast = told.label === "" ? '""' : (told.label ?? told.value);
    say(byId("try-told"), forecast === undefined ? "Nothing to forecast before the first truth." : `${forecast}${sureness(told)}`);
    byId("try-answer").textContent = straight(JSON.stringify(told, null, 2));
    if (body.wait) soon();
  });
}

// -- waiting predictions, freeze, delete -------------------------------------------------------------------------------

byId("waiting").addEventListener("click", (event) => {
  const button = event.target.closest("button[data-cancel]");
  if (button) once(button, () => cancel(button.dataset.cancel));
});

async function cancel(id) {
  const { ok, told } = await call("DELETE", `${path}/predictions/${encodeURIComponent(id)}`);
  say(byId("waiting-told"), ok ? `${id} is cancelled.` : told, !ok);
  if (ok) removeRow(id);
  soon();
}

/** Removes the row of a prediction that no longer waits, and moves the focus to the next one. */
function removeRow(id) {
  const button = document.querySelector(`[data-cancel="${CSS.escape(id)}"]`);
  const row = button?.closest("tr");
  if (!row) return;
  const next = (row.nextElementSibling ?? row.previousElementSibling)?.querySelector("[data-cancel]");
  if (button === document.activeElement) (next ?? byId("waiting")).focus();
  row.remove();
}

const freezeForm = byId("freeze-form");
if (freezeForm) {
  onSubmit(freezeForm, async (given) => {
    const { ok, told } = await call("POST", `${path}/freeze`, { name: given.get("name"), rule: given.get("rule") });
    if (ok) location.assign(`/sessions/${encodeURIComponent(told.name)}/page`);
    else say(byId("freeze-told"), told, true);
  });
}

// A frozen session can be deleted, but not frozen again.
if (byId("delete-form")) deleteForm();
