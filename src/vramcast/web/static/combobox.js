// A field with a list of names: two letters find one; arrows, Enter and Escape as in any list (WAI-ARIA combobox).
const MOST = 40;

export function combine(form, chosen) {
  for (const input of form.querySelectorAll("input[list]")) {
    const list = document.getElementById(input.getAttribute("list"));
    input.removeAttribute("list");
    if (list) attach(input, [...list.options].map((option) => option.value), chosen);
  }
}

function found(names, text) {
  const parts = text.toLowerCase().split(/[\s/_-]+/).filter(Boolean);
  const fits = names.filter((name) => { const plain = name.toLowerCase(); return parts.every((part) => plain.includes(part)); });
  const start = parts[0] ?? "";
  const rank = (name) => (name.toLowerCase().startsWith(start) ? 0 : name.toLowerCase().split("/").pop().startsWith(start) ? 1 : 2);
  return fits.map((name, i) => [rank(name), i, name]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).slice(0, MOST).map((one) => one[2]);
}

function attach(input, names, chosen) {
  const list = document.createElement("ul");
  Object.assign(list, { id: `${input.id}-options`, className: "options", hidden: true });
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", input.labels[0].textContent);
  input.parentElement.append(list);
  for (const [name, value] of Object.entries({ role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": list.id })) input.setAttribute(name, value);
  let at = -1;

  const close = () => { list.hidden = true; at = -1; input.setAttribute("aria-expanded", "false"); input.removeAttribute("aria-activedescendant"); };
  const open = () => {
    const fits = input.value.trim().length < 2 && names.length > 60 && input.value.trim() ? [] : found(names, input.value.trim());
    list.replaceChildren(...fits.map((name, i) => Object.assign(document.createElement("li"), { id: `${list.id}-${i}`, textContent: name, role: "option" })));
    for (const option of list.children) { option.setAttribute("role", "option"); option.setAttribute("aria-selected", "false"); }
    at = -1;
    list.hidden = fits.length === 0 || (fits.length === 1 && fits[0] === input.value);
    input.setAttribute("aria-expanded", String(!list.hidden));
  };
  const move = (step) => {
    if (list.hidden) open();
    if (list.hidden) return;
    list.children[at]?.setAttribute("aria-selected", "false");
    at = (at + step + list.children.length) % list.children.length;
    const option = list.children[at];
    option.setAttribute("aria-selected", "true");
    option.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", option.id);
  };
  const take = (name) => { input.value = name; close(); chosen(); };

  input.addEventListener("input", open);
  input.addEventListener("focus", () => input.select());
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); move(event.key === "ArrowDown" ? 1 : -1); }
    else if (event.key === "Enter" && at >= 0) { event.preventDefault(); take(list.children[at].textContent); }
    else if (event.key === "Escape" && !list.hidden) { event.preventDefault(); close(); }
  });
  list.addEventListener("pointerdown", (event) => { event.preventDefault(); const option = event.target.closest("li"); if (option) take(option.textContent); });
}
