// The first page's question: answers were worked out when the site was built (tools/site_hooks.py).
(async () => {
  const form = document.getElementById("ask");
  if (!form) return;
  const base = form.dataset.answers;
  const { models, cards, contexts, names, answers } = await (await fetch(base)).json();
  const zh = form.dataset.lang === "zh" ? 1 : 0;
  const fill = (name, values, chosen, shown = (x) => x) => {
    const select = form.elements[name];
    for (const value of values) select.add(new Option(shown(value), value, false, value === chosen));
  };
  fill("model", models, models[0]);
  fill("card", cards, "RTX 4090");
  fill("context", contexts, 32768, (n) => n.toLocaleString("en"));
  const out = document.getElementById("answered");
  const add = (tag, text, name = "") => { const one = document.createElement(tag); one.textContent = text; one.className = name; return one; };
  const show = () => {
    const found = answers[`${form.elements.model.value}|${form.elements.card.value}|${form.elements.context.value}`];
    out.replaceChildren();
    if (found.refused) { out.append(add("p", found.refused)); return; }
    const line = add("p", "", "line");
    line.append(add("strong", found.words[zh][0], `verdict ${found.verdict}`), ` ${found.words[zh][1]}`);
    const bar = add("div", "", "bar");
    const whole = Math.max(found.capacity, found.parts.reduce((sum, part) => sum + part[1], 0));
    bar.style.setProperty("--end", `${(100 * found.capacity) / whole}%`);
    for (const [name, size] of found.parts) {
      const part = add("span", "");
      part.style.width = `${(100 * size) / whole}%`;
      part.style.background = names[name][0];
      part.title = `${names[name][1 + zh]} ${size} GiB`;
      bar.append(part);
    }
    const legend = add("p", "", "legend");
    for (const [name, size] of found.parts) {
      const one = add("span", `${names[name][1 + zh]} ${size}`);
      one.style.setProperty("--c", names[name][0]);
      legend.append(one);
    }
    legend.append(add("span", zh ? `单位 GiB，显存 ${found.capacity}` : `GiB of ${found.capacity}`, "plain"));
    const code = add("pre", "");
    code.append(add("code", found.command));
    out.append(line, bar, legend, code);
  };
  form.addEventListener("input", show);
  show();
})();
