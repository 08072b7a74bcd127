// The page of a session: its live charts, and its forms.
import { call, curl, deleteForm, onSubmit, say } from "./api.js";
import { drawCharts } from "./charts.js";
import { follow } from "./live.js";

const { path, base } = document.getElementById("session").dataset;
const soon = follow({ events: `${path}/events`, pollMs: 5000, seen: drawCharts() });
const byId = (id) => document.getElementById(id);

// -- try it: the JSON is sent; the fields edit it --------------------------------------------------------------------

const tryForm = byId("try-form");
const box = tryForm?.elements.x;

function input() {
  try {
    return { x: JSON.parse(box.value) };
  } catch {
    return null;
  }
}

function asked() {
  const found = input();
  return found && { ...found, wait: tryForm.elements.wait?.checked ?? false };
}

function showCurl() {
  const body = asked();
  box.setCustomValidity(body ? "" : "This is not JSON.");
  if (body) byId("try-curl").textContent = curl(`${base}${path}/predict`, body);
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
      const x = input()?.x;
      const record = x && typeof x === "object" && !Array.isArray(x) ? x : {};
      box.value = JSON.stringify({ ...record, [field.dataset.field]: valueOf(field) });
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
    const forecast = told.label ?? told.value;
    const sure = told.probability === undefined ? "" : `, probability ${(100 * told.probability).toFixed(1)} %`;
    say(byId("try-told"), forecast === undefined ? "Nothing to forecast before the first truth." : `${forecast}${sure}`);
    byId("try-answer").textContent = JSON.stringify(told, null, 2);
    if (body.wait) soon();
  });
}

// -- waiting predictions, freeze, delete -------------------------------------------------------------------------------

byId("waiting").addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-cancel]");
  if (!button) return;
  button.disabled = true;
  const id = button.dataset.cancel;
  const { ok, told } = await call("DELETE", `${path}/predictions/${encodeURIComponent(id)}`);
  say(byId("waiting-told"), ok ? `${id} is cancelled.` : told, !ok);
  button.disabled = false;
  soon();
});

const freezeForm = byId("freeze-form");
if (freezeForm) {
  onSubmit(freezeForm, async (given) => {
    const { ok, told } = await call("POST", `${path}/freeze`, { name: given.get("name"), rule: given.get("rule") });
    if (ok) location.assign(`/sessions/${encodeURIComponent(told.name)}/page`);
    else say(byId("freeze-told"), told, true);
  });
  deleteForm();
}
