// The page works without this file. With it the answer follows the hand: every change asks again and the address keeps up.
import { combine } from "./combobox.js";

const form = document.getElementById("question");
const answer = document.getElementById("answer");
const said = document.getElementById("said");
const slow = form?.dataset.slow;
let config = null; // a config.json that was dropped: sent with each question, kept in this tab alone
let asking = null; // the question on its way; only the latest of those that wait is asked after it
let next = null;
let later = 0;
let after = 0;

function words() {
  const found = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (String(value).trim() !== "") found.set(name, String(value).trim());
  return found;
}

async function ask({ push = false } = {}) {
  if (asking) { next = { push: push || next?.push }; if (slow) asking.abort(); else return; }
  const stop = (asking = new AbortController());
  const query = words();
  const begun = performance.now();
  answer.setAttribute("aria-busy", "true");
  if (slow) answer.classList.add("slow");
  try {
    const body = config ? { method: "POST", body: config, headers: { "content-type": "application/json" } } : {};
    const part = slow || config ? "" : "&part=first"; // advice takes longer than the answer: asked once the hand rests
    const response = await fetch(`${form.dataset.fragment}?${query}${part}`, { signal: stop.signal, ...body });
    const text = await response.text();
    if (next === null || !slow) {
      show(text);
      history[push ? "pushState" : "replaceState"](null, "", `${form.getAttribute("action")}?${query}`);
      if (!slow) performance.measure("question to picture", { start: begun, end: performance.now() });
    }
  } catch (error) {
    if (error.name !== "AbortError") throw error;
  } finally {
    if (asking === stop) asking = null;
    answer.setAttribute("aria-busy", "false");
    answer.classList.remove("slow");
  }
  if (next && !asking) { const again = next; next = null; ask(again); }
}

function show(text) {
  const open = [...answer.querySelectorAll("details")].map((one) => one.open);
  const kept = answer.querySelector("[data-pictures]");
  answer.innerHTML = text;
  [...answer.querySelectorAll("details")].forEach((one, i) => { if (open[i]) one.open = true; });
  const place = answer.querySelector("[data-pictures]");
  if (kept?.dataset.shown && place) place.innerHTML = kept.innerHTML; // the last pictures stand until the next are drawn
  enliven(answer);
  mark();
  said.textContent = (answer.querySelector("h2") ?? answer.querySelector(".problem"))?.textContent ?? "";
}

function mark() {
  for (const input of form.querySelectorAll("[aria-invalid]")) { input.removeAttribute("aria-invalid"); input.removeAttribute("aria-describedby"); }
  const problem = answer.querySelector(".problem[data-field]");
  const input = problem?.dataset.field && form.elements[problem.dataset.field];
  if (input instanceof HTMLElement) { problem.id = "problem"; input.setAttribute("aria-invalid", "true"); input.setAttribute("aria-describedby", "problem"); }
}

function enliven(root) {
  for (const button of root.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = button.dataset.done;
    });
  }
  pictures(root);
  rest(root);
  for (const bar of root.querySelectorAll(".card-bar")) tell(bar, root);
}

function tell(bar, root) {
  if (!bar.dataset.hint) return; // what a part of the bar is, below it while the pointer is on it or on its row
  const line = document.createElement("p");
  line.className = "told";
  line.textContent = bar.dataset.hint ?? "";
  bar.append(line);
  for (const part of bar.querySelectorAll(".part")) {
    const row = root.querySelector(`tr[data-term="${CSS.escape(part.dataset.term)}"]`);
    const on = () => { line.textContent = part.querySelector("title").textContent; row?.classList.add("lit"); };
    const off = () => { line.textContent = bar.dataset.hint ?? ""; row?.classList.remove("lit"); };
    for (const one of [part, row]) { one?.addEventListener("pointerenter", on); one?.addEventListener("pointerleave", off); }
  }
}

function pictures(root) { // they take longer than the answer: drawn once the hand rests
  clearTimeout(later);
  const place = root.querySelector("[data-pictures]");
  if (!place) return;
  later = setTimeout(async () => {
    const response = await fetch(`${place.dataset.pictures}&alone=1`);
    if (!place.isConnected || !response.ok) return;
    place.innerHTML = await response.text();
    place.dataset.shown = "yes";
  }, 250);
}

function rest(root) {
  clearTimeout(after);
  const place = root.querySelector("[data-rest]");
  if (!place) return;
  after = setTimeout(async () => {
    const response = await fetch(place.dataset.rest);
    if (!place.isConnected || !response.ok) return;
    const found = document.createElement("div");
    found.innerHTML = await response.text();
    for (const part of found.querySelectorAll("[data-part]")) {
      const old = root.querySelector(`[data-part="${part.dataset.part}"]`);
      if (old) old.innerHTML = part.innerHTML;
    }
  }, 150);
}

function slide() {
  for (const range of form.querySelectorAll("input[type=range]")) {
    const stops = range.dataset.stops.split(",").map(Number);
    const input = form.elements[range.dataset.for];
    const place = () => {
      const value = Number(input.value.replace(/k$/i, "000")) || stops[0];
      range.value = stops.reduce((best, stop, i) => (Math.abs(stop - value) < Math.abs(stops[best] - value) ? i : best), 0);
      range.setAttribute("aria-valuetext", input.value || form.querySelector("option")?.textContent || "");
    };
    place();
    range.hidden = false;
    range.addEventListener("input", () => { input.value = stops[range.value]; range.setAttribute("aria-valuetext", input.value); ask(); });
    input.addEventListener("input", place);
  }
}

function refill() {
  const query = new URLSearchParams(location.search);
  for (const element of form.elements) if (element.name && element.type !== "hidden") element.value = query.get(element.name) ?? "";
}

function follow() {
  let waiting = 0;
  if (!slow) form.addEventListener("input", (event) => {
    if (event.target.type === "range") return;
    if (event.target.id === "model") config = null;
    clearTimeout(waiting);
    waiting = setTimeout(ask, event.target.getAttribute("aria-expanded") === "true" ? 900 : 120); // a list is open: a name is half typed
  });
  if (!slow) form.addEventListener("change", (event) => { if (event.target.getAttribute("role") === "combobox") { clearTimeout(waiting); ask(); } });
  form.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(waiting); ask({ push: true }); });
  answer.addEventListener("click", (event) => {
    const link = event.target.closest(".advice a.button, .problem a.button, a.cell");
    if (!link || event.metaKey || event.ctrlKey) return;
    event.preventDefault();
    history.pushState(null, "", link.getAttribute("href"));
    refill();
    ask();
  });
  addEventListener("popstate", () => { refill(); ask(); });
}

// Files: a config.json becomes the model of this page; anything else is read by the page for pasting.
const MOST = 32 * 2 ** 20, HEAD = 24 * 2 ** 20;
const paste = document.getElementById("paste");

async function read(file) {
  const gguf = file.name?.toLowerCase().endsWith(".gguf");
  if (!gguf && file.size > MOST) { answer.textContent = paste.dataset.large; return; }
  said.textContent = answer.textContent = paste.dataset.reading;
  const gpu = paste.elements.gpu.value;
  const query = new URLSearchParams({ name: file.name ?? "", gpu, size: file.size, lang: document.documentElement.lang });
  const response = await fetch(`/read?${query}`, { method: "POST", body: gguf ? file.slice(0, HEAD) : file });
  answer.innerHTML = await response.text();
  enliven(answer);
  said.textContent = (answer.querySelector("h2") ?? answer.querySelector(".problem"))?.textContent ?? "";
}

function receive() {
  addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dropping"); });
  addEventListener("dragleave", () => document.body.classList.remove("dropping"));
  addEventListener("drop", async (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    const file = event.dataTransfer.files[0];
    if (!file) return;
    if (paste) { read(file); return; }
    if (form && !slow && file.size < 1_000_000) {
      const text = await file.text();
      if (/^\s*\{/.test(text) && /"model_type"|"architectures"/.test(text)) {
        config = text;
        form.elements.model.value = file.name;
        ask();
        return;
      }
    }
    await keep(file);
    location.href = `/paste?lang=${document.documentElement.lang}`;
  });
}

function store() {
  return new Promise((done, failed) => {
    const opened = indexedDB.open("vramcast", 1);
    opened.onupgradeneeded = () => opened.result.createObjectStore("dropped");
    opened.onsuccess = () => done(opened.result);
    opened.onerror = () => failed(opened.error);
  });
}
function inStore(base, how, ...values) {
  return new Promise((done, failed) => {
    const request = base.transaction("dropped", "readwrite").objectStore("dropped")[how](...values);
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
}
async function keep(file) { const base = await store(); await inStore(base, "put", file, "file"); base.close(); }
async function dropped() {
  const base = await store();
  const file = await inStore(base, "get", "file");
  await inStore(base, "delete", "file");
  base.close();
  return file;
}

const theme = document.getElementById("theme");
try { const kept = localStorage.getItem("theme"); if (kept) document.documentElement.dataset.theme = kept; } catch { /* storage is closed */ }
theme.hidden = false;
theme.addEventListener("click", () => {
  const dark = (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("theme", document.documentElement.dataset.theme); } catch { /* storage is closed */ }
});

if (form && answer) { combine(form, () => { if (!slow) ask(); }); slide(); follow(); enliven(answer); mark(); }
else if (answer) enliven(answer);
if (paste) {
  const file = document.getElementById("file"), example = document.getElementById("example");
  file.addEventListener("change", () => { if (file.files[0]) read(file.files[0]); });
  paste.addEventListener("submit", (event) => { event.preventDefault(); const text = paste.elements.text.value; if (text.trim()) read(new Blob([text])); else if (file.files[0]) read(file.files[0]); });
  example.hidden = false;
  example.addEventListener("click", () => { paste.elements.text.value = example.dataset.text; paste.elements.gpu.value = example.dataset.gpu; paste.requestSubmit(); });
  dropped().then((found) => { if (found) read(found); }, () => { /* storage is closed */ });
}
receive();
