"use strict";
// The browser of rollouts. It makes text nodes only: nothing that a model wrote is read as HTML.
function browseRollouts() {
  const at = (id) => document.getElementById(id);
  if (!at("rollouts")) return;
  const { strings, rows } = JSON.parse(at("rollouts").textContent);
  const total = rows.problem.length, PAGE = 20, PROBLEMS = 200;
  const SEARCHED = ["statement", "text", "detail", "problem", "strategy", "method"].filter((column) => rows[column]);
  const FILTERS = ["source", "run", "role", "gate", "status", "strategy", "followed"].filter(at);
  const passed = strings.indexOf("passed");
  const name = (column, row) => strings[rows[column][row]];
  const isDraft = (row) => Boolean(rows.role) && name("role", row) !== "" && name("role", row) !== "solve";
  const groupOf = (row) => ["run", "source", "step", "slot"].map((column) => rows[column][row]).join(" ");
  const drafts = new Map(); // of each group that has some, by their places
  for (let row = 0; row < total; row++) {
    if (!isDraft(row)) continue;
    if (!drafts.has(groupOf(row))) drafts.set(groupOf(row), new Map());
    drafts.get(groupOf(row)).set(rows.place[row], row);
  }
  const above = (row) => (drafts.size ? drafts.get(groupOf(row))?.get(rows.parent[row]) : undefined);
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
    const asked = FILTERS.map((id) => [rows[id], at(id).value]);
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

  const newGroup = (row) => {
    const statement = rows.statement ? name("statement", row) : "";
    const shown = firstLine(statement) || name("problem", row);
    return { id: rows.problem[row], name: shown, statement, rows: [], passed: 0, attempts: 0 };
  };
  const firstLine = (text) => {
    const line = text.split("\n").map((each) => each.replace(/^[\s#"'/*>-]+/, "")).find((each) => each) ?? "";
    return line.length > 90 ? `${line.slice(0, 89)}…` : line;
  };

  const share = (group) => group.passed / (group.attempts || 1);
  const ORDERS = {
    "name": (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.id - b.id), // tasks may begin alike
    "fewest passed": (a, b) => share(a) - share(b) || ORDERS.name(a, b),
    "most passed": (a, b) => share(b) - share(a) || ORDERS.name(a, b),
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
      if (!of.has(problem)) of.set(problem, newGroup(row));
      const group = of.get(problem);
      group.rows.push(row);
      group.passed += rows.status[row] === passed;
      group.attempts += !isDraft(row);
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
      const told = group.attempts ? `${group.passed} of ${group.attempts} here passed` : `drafts: ${group.rows.length}`;
      button.append(element("span", group.name), element("span", told));
      button.setAttribute("aria-current", group.id === chosen);
      item.append(button);
      return item;
    });
    if (groups.length > listed) {
      const item = element("li");
      item.append(more(`${groups.length - listed} more problems`, () => {
        const next = listed;
        listed = Infinity;
        showProblems();
        at("problems").children[next].firstChild.focus();
      }));
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
    const placed = drafts.size ? arranged(sorted) : sorted.map((row) => ({ row, depth: 0 }));
    const head = [element("h3", group.name)];
    if (group.statement)
      head.push(element("p", strings[group.id], "quiet"), folded("task", () => element("pre", group.statement), true));
    const made = [...head, ...placed.slice(0, shown).map(rollout)];
    if (placed.length > shown)
      made.push(more(`${placed.length - shown} more rollouts`, () => {
        const next = head.length + shown;
        shown += PAGE;
        showRollouts();
        at("shown").children[next].tabIndex = -1;
        at("shown").children[next].focus();
      }));
    at("shown").replaceChildren(...made);
  }

  // Each group's drafts above what was made from them, where its first rollout stands. Drafts that are not among `found`
  // are shown above those that are: `beside`.
  function arranged(found) {
    const wanted = new Set(found), below = new Map(), seen = new Set(), placed = [];
    for (const first of found)
      for (let row = first; row !== undefined && !seen.has(row); row = above(row)) {
        seen.add(row);
        const under = above(row) ?? (drafts.has(groupOf(row)) ? groupOf(row) : `alone ${row}`);
        if (!below.has(under)) below.set(under, []);
        below.get(under).push(row);
      }
    const place = (row, depth) => {
      placed.push({ row, depth, beside: !wanted.has(row) });
      put(row, depth + 1);
    };
    const put = (under, depth) => (below.get(under) ?? [])
      .sort((a, b) => isDraft(b) - isDraft(a) || (isDraft(a) ? rows.place[a] - rows.place[b] : 0))
      .forEach((row) => place(row, depth));
    for (const under of [...below.keys()]) if (typeof under === "string") put(under, 0);
    return placed;
  }

  function jump(row) {
    const button = more(name("made", row), () => {
      const target = document.getElementById(`rollout-${above(row)}`);
      target.scrollIntoView();
      target.focus();
    });
    button.className = "jump";
    return button;
  }

  function rollout({ row, depth, beside }) {
    const good = rows.status[row] === passed, value = rows.advantage[row], label = name("label", row);
    const draft = isDraft(row), ofDrafts = rows.role && name("role", row), kind = draft ? "draft" : good ? "passed" : "failed";
    const made = element("article", "", `rollout ${kind}${depth ? ` below-${Math.min(depth, 4)}` : ""}${beside ? " quiet" : ""}`);
    const gate = draft && name("gate", row), answer = { accepted: ", accepted", refused: ", refused" }[gate] ?? "";
    const facts = [
      ofDrafts && `${draft ? "draft" : "attempt"} ${rows.place[row]}`,
      draft && name("status", row),
      ...(draft ? [gate && `J ${{ accepted: "= 1", refused: "= 0" }[gate] ?? gate}${short(", p = ", rows.p[row])}`,
        name("contract", row), name("solved", row)] : []),
      (!draft || name("strategy", row)) && `strategy by execution: ${name("strategy", row) || "none"}`,
      ofDrafts && name("followed", row) && `method followed: ${name("followed", row)}`,
      label && `by the judge: ${label}`,
      ofDrafts && [`${rows.tokens[row].toLocaleString("en")} tokens`, name("cut", row)].filter(Boolean).join(", "),
      ofDrafts && short("reward ", rows.reward[row]),
      value === null ? "" : `advantage ${value < 0 ? "" : "+"}${value.toFixed(3)}`,
      rows.scaffold && name("scaffold", row) && `scaffold ${name("scaffold", row)}`,
      `${name("source", row)}, step ${rows.step[row]}`,
      at("run").options.length > 2 && name("run", row),
    ];
    const head = element("div");
    if (ofDrafts && name("method", row)) made.append(element("div", name("method", row), "method"));
    head.append(element("b", draft ? name("role", row) + answer : name("status", row), answer && gate),
      element("span", ` · ${facts.filter(Boolean).join(" · ")}`, "quiet"));
    if (above(row) !== undefined) head.append(" ", jump(row));
    if (draft) {
      made.id = `rollout-${row}`;
      made.tabIndex = -1;
    }
    made.append(head);
    if (name("detail", row)) made.append(element("div", name("detail", row), "detail"));
    const prompt = name("prompt", row), folds = !draft && above(row) !== undefined && isProse(above(row));
    if (prompt) made.append(folded("prompt", () => element("pre", prompt)));
    made.append(folds ? folded("code", () => text(row), at("search").value !== "") : text(row));
    return made;
  }

  const isProse = (row) => isDraft(row) && !name("status", row); // a plan, as far as one can tell
  const short = (told, value) => (value === null ? "" : `${told}${Number(value.toPrecision(3))}`);

  function folded(title, inside, open = false) {
    const details = element("details");
    details.append(element("summary", title));
    details.addEventListener("toggle", () => { if (!details.querySelector("pre")) details.append(inside()); });
    details.open = open;
    return details;
  }

  function text(row) {
    const made = element("pre");
    name("text", row).split(/(```)/).reduce((fenced, part, i, parts) => {
      made.append(...((parts.length > 1 || isProse(row)) && !fenced ? [part] : tokens(part)));
      return part === "```" ? !fenced : fenced;
    }, false);
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

  FILTERS.forEach(fill);
  for (const id of [...FILTERS, "order"]) at(id).addEventListener("change", update);
  at("search").addEventListener("input", update);
  at("sort").addEventListener("change", () => { shown = PAGE; showRollouts(); });
  update();
}
browseRollouts();
