// The page works without this file. With it the answer follows the hand: every change asks again and the address keeps up.
const form = document.getElementById("question");
const answer = document.getElementById("answer");
let config = null; // a config.json that was dropped: sent with each question, kept in this tab alone
let asking = null;

function words() {
  const found = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (String(value).trim() !== "") found.set(name, String(value).trim());
  return found;
}

async function ask({ push = false } = {}) {
  const query = words();
  asking?.abort();
  asking = new AbortController();
  answer.setAttribute("aria-busy", "true");
  try {
    const kind = form.dataset.kind;
    const body = config ? { method: "POST", body: config, headers: { "content-type": "application/json" } } : {};
    const response = await fetch(`/answer/${kind}?${query}`, { signal: asking.signal, ...body });
    answer.innerHTML = await response.text();
    history[push ? "pushState" : "replaceState"](null, "", `/${kind}?${query}`);
    enliven(answer);
    mark();
  } catch (error) {
    if (error.name !== "AbortError") throw error;
    return;
  }
  answer.setAttribute("aria-busy", "false");
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
  for (const details of root.querySelectorAll("details[data-map]")) {
    details.addEventListener("toggle", async () => {
      if (!details.open || details.dataset.loaded) return;
      details.dataset.loaded = "yes";
      details.lastElementChild.innerHTML = await (await fetch(`${details.dataset.map}&alone=1`)).text();
    });
  }
  for (const part of root.querySelectorAll(".part")) {
    const row = root.querySelector(`tr[data-term="${CSS.escape(part.dataset.term)}"]`);
    part.addEventListener("pointerenter", () => row?.classList.add("lit"));
    part.addEventListener("pointerleave", () => row?.classList.remove("lit"));
  }
}

function slide() {
  for (const range of form.querySelectorAll("input[type=range]")) {
    const stops = range.dataset.stops.split(",").map(Number);
    const input = form.elements[range.dataset.for];
    const place = () => {
      const value = Number(input.value.replace(/k$/i, "000")) || stops[0];
      range.value = stops.reduce((best, stop, i) => (Math.abs(stop - value) < Math.abs(stops[best] - value) ? i : best), 0);
    };
    place();
    range.hidden = false;
    range.addEventListener("input", () => { input.value = stops[range.value]; ask(); });
    input.addEventListener("input", place);
  }
}

function refill() {
  const query = new URLSearchParams(location.search);
  for (const element of form.elements) if (element.name && element.name !== "lang") element.value = query.get(element.name) ?? "";
}

function follow() {
  let waiting = 0;
  form.addEventListener("input", (event) => {
    if (event.target.type === "range") return;
    if (event.target.id === "model") config = null;
    clearTimeout(waiting);
    waiting = setTimeout(ask, 120);
  });
  form.addEventListener("submit", (event) => { event.preventDefault(); ask({ push: true }); });
  answer.addEventListener("click", (event) => {
    const link = event.target.closest(".advice a.button, .problem a.button");
    if (!link || event.metaKey || event.ctrlKey) return;
    event.preventDefault();
    history.pushState(null, "", link.href);
    refill();
    ask();
  });
  addEventListener("popstate", () => { refill(); ask(); });
}

function receive() {
  addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dropping"); });
  addEventListener("dragleave", () => document.body.classList.remove("dropping"));
  addEventListener("drop", async (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    const file = event.dataTransfer.files[0];
    if (!file) return;
    const text = await file.slice(0, 1_000_000).text();
    if (form && text.trimStart().startsWith("{")) {
      config = text;
      form.elements.model.value = "config.json";
      ask();
    } else {
      sessionStorage.setItem("pasted", text);
      location.href = `/paste?lang=${document.documentElement.lang}`;
    }
  });
}

const theme = document.getElementById("theme");
try { const kept = localStorage.getItem("theme"); if (kept) document.documentElement.dataset.theme = kept; } catch { /* storage is closed */ }
theme.hidden = false;
theme.addEventListener("click", () => {
  const dark = (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("theme", document.documentElement.dataset.theme); } catch { /* storage is closed */ }
});
const box = document.querySelector("#paste textarea");
if (box && sessionStorage.getItem("pasted")) { box.value = sessionStorage.getItem("pasted"); sessionStorage.removeItem("pasted"); document.getElementById("paste").requestSubmit(); }
if (form && answer) { slide(); follow(); enliven(answer); mark(); }
receive();
