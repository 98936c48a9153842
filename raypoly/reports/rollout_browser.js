"use strict";
// The browser of rollouts. It makes text nodes only: nothing that a model wrote is read as HTML.
(() => {
  const at = (id) => document.getElementById(id);
  if (!at("rollouts")) return;
  const { strings, rows } = JSON.parse(at("rollouts").textContent);
  const total = rows.problem.length, PAGE = 20, PROBLEMS = 200;
  const SEARCHED = ["text", "detail", "problem", "strategy"];
  const passed = strings.indexOf("passed");
  const name = (column, row) => strings[rows[column][row]];
  let lower = null, groups = [], chosen = null, shown = PAGE, listed = PROBLEMS;

  const element = (tag, text = "", kind = "") => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };

  const more = (text, act) => {
    const button = element("button", text);
    button.type = "button";
    button.addEventListener("click", act);
    return button;
  };

  function fill(id) {
    const values = [...new Set(rows[id])].sort((a, b) => (strings[a] < strings[b] ? -1 : 1));
    const all = element("option", "all");
    all.value = "";
    at(id).append(all, ...values.map((value) => {
      const option = element("option", strings[value] || "none");
      option.value = value;
      return option;
    }));
    at(id).parentElement.hidden = values.length < 2;
  }

  function kept() {
    const asked = ["source", "run", "status", "strategy"].map((id) => [rows[id], at(id).value]);
    const wanted = asked.filter(([, value]) => value !== "").map(([column, value]) => [column, Number(value)]);
    const query = at("search").value.toLowerCase();
    if (query) lower ??= strings.map((text) => text.toLowerCase());
    const hits = query ? lower.map((text) => text.includes(query)) : null;
    const found = [];
    for (let row = 0; row < total; row++) {
      if (wanted.some(([column, value]) => column[row] !== value)) continue;
      if (!hits || SEARCHED.some((column) => hits[rows[column][row]])) found.push(row);
    }
    return found;
  }

  const ORDERS = {
    "name": (a, b) => (a.name < b.name ? -1 : 1),
    "fewest passed": (a, b) => a.passed / a.rows.length - b.passed / b.rows.length || ORDERS.name(a, b),
    "most passed": (a, b) => b.passed / b.rows.length - a.passed / a.rows.length || ORDERS.name(a, b),
    "most rollouts": (a, b) => b.rows.length - a.rows.length || ORDERS.name(a, b),
  };
  const by = (column) => (a, b) => name(column, a).localeCompare(name(column, b)) || a - b;
  const SORTS = {
    step: (a, b) => rows.step[a] - rows.step[b] || a - b,
    verdict: (a, b) => (rows.status[b] === passed) - (rows.status[a] === passed) || by("status")(a, b),
    strategy: by("strategy"),
    advantage: (a, b) => (rows.advantage[b] ?? -Infinity) - (rows.advantage[a] ?? -Infinity) || a - b,
    length: (a, b) => name("text", a).length - name("text", b).length || a - b,
  };

  function update() {
    const found = kept(), of = new Map();
    for (const row of found) {
      const problem = rows.problem[row];
      if (!of.has(problem)) of.set(problem, { id: problem, name: strings[problem], rows: [], passed: 0 });
      const group = of.get(problem);
      group.rows.push(row);
      group.passed += rows.status[row] === passed;
    }
    groups = [...of.values()].sort(ORDERS[at("order").value]);
    at("count").textContent =
      `${found.length.toLocaleString("en")} of ${total.toLocaleString("en")} rollouts, ${groups.length} problems`;
    if (!of.has(chosen)) chosen = groups.length ? groups[0].id : null;
    shown = PAGE;
    listed = PROBLEMS;
    showProblems();
    showRollouts();
  }

  function showProblems() {
    const items = groups.slice(0, listed).map((group) => {
      const button = more("", () => choose(group.id)), item = element("li");
      button.dataset.problem = group.id;
      button.append(element("span", group.name), element("span", `${group.passed} of ${group.rows.length} passed`));
      button.setAttribute("aria-current", group.id === chosen);
      item.append(button);
      return item;
    });
    if (groups.length > listed) {
      const item = element("li");
      item.append(more(`${groups.length - listed} more problems`, () => { listed = Infinity; showProblems(); }));
      items.push(item);
    }
    at("problems").replaceChildren(...items);
  }

  function choose(problem) {
    chosen = problem;
    shown = PAGE;
    for (const button of at("problems").querySelectorAll("button[data-problem]"))
      button.setAttribute("aria-current", Number(button.dataset.problem) === chosen);
    showRollouts();
  }

  function showRollouts() {
    const group = groups.find((each) => each.id === chosen);
    if (!group) return at("shown").replaceChildren(element("p", "No rollout is like this.", "quiet"));
    const sorted = [...group.rows].sort(SORTS[at("sort").value]);
    const made = [element("h3", group.name), ...sorted.slice(0, shown).map(rollout)];
    if (sorted.length > shown)
      made.push(more(`${sorted.length - shown} more rollouts`, () => { shown += PAGE; showRollouts(); }));
    at("shown").replaceChildren(...made);
  }

  function rollout(row) {
    const good = rows.status[row] === passed, value = rows.advantage[row], label = name("label", row);
    const made = element("article", "", `rollout ${good ? "passed" : "failed"}`), code = element("pre");
    const facts = [
      `strategy by execution: ${name("strategy", row) || "none"}`,
      label && `by the judge: ${label}`,
      value === null ? "" : `advantage ${value < 0 ? "" : "+"}${value.toFixed(3)}`,
      `${name("source", row)}, step ${rows.step[row]}`,
      at("run").options.length > 2 && name("run", row),
    ];
    const head = element("div");
    head.append(element("b", name("status", row)), element("span", ` · ${facts.filter(Boolean).join(" · ")}`, "quiet"));
    made.append(head);
    if (name("detail", row)) made.append(element("div", name("detail", row)));
    const prompt = name("prompt", row);
    if (prompt) {
      const details = element("details");
      details.append(element("summary", "prompt"));
      details.addEventListener("toggle", () => { if (!details.querySelector("pre")) details.append(element("pre", prompt)); });
      made.append(details);
    }
    name("text", row).split(/(```)/).reduce((fenced, part, i, parts) => {
      code.append(...(parts.length > 1 && !fenced ? [part] : tokens(part)));
      return part === "```" ? !fenced : fenced;
    }, false);
    made.append(code);
    return made;
  }

  const WORDS = "and as assert async await break class continue def del elif else except finally for from global if " +
    "import in is lambda nonlocal not or pass raise return try while with yield None True False";
  const TOKEN = new RegExp(
    "(?<c>#.*)|(?<s>\"\"\"[^]*?(?:\"\"\"|$)|'''[^]*?(?:'''|$)|\"(?:\\\\.|[^\"\\\\\\n])*\"?|'(?:\\\\.|[^'\\\\\\n])*'?)" +
    `|\\b(?<k>${WORDS.replaceAll(" ", "|")})\\b|(?<d>\\b\\d[\\w.]*)|(?<f>\\b[A-Za-z_]\\w*(?=\\())`, "g");

  function tokens(text) {
    const made = [];
    let end = 0;
    for (const match of text.matchAll(TOKEN)) {
      const kind = Object.keys(match.groups).find((each) => match.groups[each] !== undefined);
      made.push(text.slice(end, match.index), element("span", match[0], kind));
      end = match.index + match[0].length;
    }
    return [...made, text.slice(end)];
  }

  ["source", "run", "status", "strategy"].forEach(fill);
  for (const id of ["source", "run", "status", "strategy", "order"]) at(id).addEventListener("change", update);
  at("search").addEventListener("input", update);
  at("sort").addEventListener("change", () => { shown = PAGE; showRollouts(); });
  update();
})();
