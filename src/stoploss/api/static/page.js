import { drawCharts } from "./charts.js";
import { h, name, picture, show } from "./dom.js";

const KEY = "stoploss-token";
const place = (id) => document.getElementById(id);
let shown = {}, pictures = null, timer = null, reached = null;

async function ask(path, body) {
  const token = sessionStorage.getItem(KEY);
  const headers = { Accept: "application/json", "X-Stoploss": "1" };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body),
    cache: "no-store", credentials: "omit", redirect: "error",
  });
  const said = await answer.json();
  if (answer.ok) return said;
  const problem = new Error(`${said.error.message}; ${said.error.fix}`);
  problem.status = answer.status;
  throw problem;
}

function trouble(text) {
  const line = place("trouble");
  if (line.textContent !== text) line.textContent = text;
  line.hidden = !text;
}

const FIRST = 8;
const list = (items, attributes) => items.length ? h("ul", attributes || null, items.map((item) => h("li", null, item))) : null;
const heading = (text) => h("h2", null, text);
const many = (number, word) => `${number.toLocaleString("en")} ${number === 1 ? word : word + "s"}`;
const head = (...cells) => h("thead", null, h("tr", null, cells.map(([text, number]) => h("th", { scope: "col", class: number ? "n" : null }, text))));

function figures(all) {
  show(place("figures"), h("div", { class: "figures" }, all.figures.map((one) =>
    h("div", { "data-key": one.label }, one.label, h("b", null, one.value), one.notes.map((note) => h("small", null, note))))));
}

function finding(row) {
  const cell = (label, value) => h("td", { role: "cell", class: value === "–" ? "n none" : "n", "data-label": label }, value);
  return h("tr", { role: "row", "data-key": row.id, id: row.id },
    cell("per h", row.per_hour), cell("so far", row.so_far), cell("since", row.age),
    h("td", { role: "cell" },
      h("span", { class: `word ${row.word}` }, row.word), " ", h("b", null, name(row.policy)), ` on ${row.kind} `, h("b", null, name(row.resource)),
      h("details", null, h("summary", null, name(row.about)),
        list([...row.facts.map((fact) => [h("code", null, fact.condition), ": ", h("b", null, fact.value), " ", h("span", { class: "soft" }, fact.samples)]), ...(row.cost ? [row.cost] : [])], { class: "small" })),
      list(row.notes, { class: "small" })));
}

function findings(all) {
  const title = heading("What burns, the dearest first");
  if (!all.findings.length) return show(place("findings"), title, h("p", null, "No policy fires or is about to."));
  const columns = [["per hour", 1], ["so far", 1], ["since", 1], ["what, and on what evidence"]];
  const table = (rows) => h("table", { role: "table" },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(([text, number]) => h("th", { role: "columnheader", class: number ? "n" : null }, text)))),
    h("tbody", { role: "rowgroup" }, rows.map(finding)));
  const first = all.findings.slice(0, FIRST), rest = all.findings.slice(FIRST);
  show(place("findings"), title, h("p", { class: "soft" }, all.states), table(first),
    rest.length ? h("details", { "data-key": "rest" }, h("summary", null, `${many(rest.length, "finding")} that cost less, or name no cost`), table(rest)) : null,
    all.more_findings ? h("p", null, `${many(all.more_findings, "more finding")}: `, h("code", null, "/v1/findings")) : null);
}

function answer(one, may) {
  const field = `reason-${one.id}`;
  const buttons = [["approve", "approve"], ["reject", "reject"]].map(([word, act]) =>
    h("button", { type: "button", "data-act": act, "data-id": one.id, "aria-label": `${word}: ${one.step}` }, word));
  return h("div", { class: "ask", "data-key": one.id },
    h("b", null, name(one.step)), h("span", { class: "small soft" }, ` wanted by ${one.policy}, may be answered until ${one.until}`),
    may ? h("div", { class: "answer" }, h("label", { for: field }, "reason"), h("input", { id: field, maxlength: 1000, autocomplete: "off" }), buttons)
      : h("p", { class: "small" }, "This token may not answer it."),
    h("div", { class: "said", role: "status", "data-mine": true }));
}

function plan(all) {
  const may = all.you.scopes.includes("approve"), admin = all.you.scopes.includes("admin");
  const table = planned(may), least = Math.max(FIRST, all.plan.filter((row) => row.asks.length).length);
  const carried = { audit: "Nothing: in mode audit it is only written down what would be done.", warn: "In mode warn people are told, and nothing else is done.", enforce: "In mode enforce what no guard stops is done." }[all.mode];
  const state = all.paused !== null ? `Paused: ${all.paused}. Nothing is carried out.` : carried;
  show(place("plan"), heading("What will happen"),
    h("p", null, state, all.freeze ? ` Frozen: ${all.freeze}.` : "", all.waiting ? ` ${many(all.waiting, "step")} wait${all.waiting === 1 ? "s" : ""} for an answer.` : ""),
    admin ? h("div", { class: "answer switch", "data-key": "switch" },
      h("label", { for: "pause-reason" }, "reason"), h("input", { id: "pause-reason", maxlength: 1000, autocomplete: "off" }),
      h("button", { type: "button", "data-act": all.paused !== null ? "resume" : "pause" }, all.paused !== null ? "resume" : "pause everything"),
      h("span", { class: "said", role: "status", "data-mine": true })) : null,
    all.plan.length ? table(all.plan.slice(0, least)) : h("p", null, "No step is planned."),
    all.plan.length > least ? h("details", { "data-key": "rest" }, h("summary", null, `the plan of ${many(all.plan.length - least, "more resource")}`), table(all.plan.slice(least))) : null);
}

function planned(may) {
  return (rows) => h("table", { class: "stack" }, head(["of"], ["what, and when"], ["guard"], ["saves", 1]),
      h("tbody", null, rows.map((row) => h("tr", { "data-key": row.about },
        h("td", null, name(row.about)),
        h("td", null, row.steps, row.reasons.map((reason) => [h("br"), h("small", null, name(reason))]), row.asks.map((one) => answer(one, may))),
        h("td", null, row.guard), h("td", { class: "n" }, row.saves || "not known")))));
}

function causes(all) {
  const table = (title, what, amount, rows) => rows.length ? [heading(title), h("table", { class: "stack" }, head(["of"], [what], [amount, 1]),
    h("tbody", null, rows.map((row) => h("tr", { "data-key": row.about + row.name }, h("td", null, name(row.about)),
      h("td", null, h("b", null, row.name), h("br"), row.text, row.notes.map((note) => [h("br"), h("small", null, note)])),
      h("td", { class: "n" }, row.amount || "not known")))))] : [];
  show(place("causes"), table("What caused it", "incident, and why", "loses", all.incidents), table("What would make it cheaper", "change, and why", "saves", all.advice));
}

function unknown(all) {
  show(place("unknown"), heading("What we do not know"),
    all.unread.length ? [h("p", null, "Could not be read:"), list(all.unread.map(name))] : null,
    all.unknown.length ? h("table", { class: "stack" }, head(["policy"], ["why it is unknown"], ["how many", 1]),
      h("tbody", null, all.unknown.map((row) => h("tr", { "data-key": row.policy + row.reason }, h("td", null, name(row.policy)),
        h("td", null, row.reason, row.names ? [h("br"), h("small", null, name(row.names))] : null),
        h("td", { class: "n" }, row.names ? many(row.count, "resource") : ""))))) : h("p", null, "Every policy could be decided on every resource it applies to."),
    all.more_unknown ? h("p", null, `${many(all.more_unknown, "more reason")}: `, h("code", null, "/v1/unknown")) : null,
    all.unpriced.map((one) => h("p", null, `The cost of ${many(one.count, "finding")} is unknown: ${one.reason}.`)));
}

function ledger(all) {
  show(place("ledger"), heading("What was decided and done"),
    all.ledger.length ? h("table", { class: "stack" }, head(["when"], ["what, and why"], ["by whom"]),
      h("tbody", null, all.ledger.map((line) => h("tr", { "data-key": line.seq }, h("td", null, line.at),
        h("td", null, name(line.what), line.why ? [h("br"), h("small", null, name(line.why))] : null), h("td", null, name(line.about)))))) : h("p", null, "Nothing yet."));
}

function how(all) {
  show(place("how"), heading("How it was computed"),
    h("dl", null, all.how.map((one) => [h("dt", null, one.term), h("dd", null, one.text)])),
    h("details", null, h("summary", null, "The policies"), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "The policies" },
      h("table", null, head(["policy"], ["severity"], ["conditions"]), h("tbody", null, all.policies.map((one) =>
        h("tr", { "data-key": one.name }, h("td", null, name(one.name)), h("td", null, one.severity), h("td", null, one.summary, one.conditions.map((text) => [h("br"), h("code", null, text)])))))))),
    sessionStorage.getItem(KEY) ? h("p", { class: "small" }, h("button", { type: "button", class: "plain", "data-act": "forget" }, "forget the token")) : null);
}

function curves(all) {
  const section = place("curves");
  if (!all.jobs.length) return show(section);
  const exact = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const money = new Intl.NumberFormat("en", { style: "currency", currency: all.currency });
  const last = (curve) => { const known = curve.values.filter((value) => value !== null); return known.length ? known[known.length - 1] : null; };
  const told = (curve, form) => { const value = last(curve); return value === null ? "not finite" : form.format(value); };
  const least = (curve) => { const known = curve.values.filter((value) => value !== null); return known.length ? exact.format(Math.min(...known)) : "none"; };
  const numbers = (job) => Object.entries(job.curves).map(([signal, curve]) => h("tr", { "data-key": signal },
    h("th", { scope: "row" }, { "train.loss": "training loss", "eval.loss": "validation loss", cost: "cost so far" }[signal]),
    h("td", { class: "n" }, told(curve, signal === "cost" ? money : exact)),
    h("td", { class: "n" }, signal === "cost" ? "" : `lowest ${least(curve)}`),
    h("td", { class: "n" }, curve.non_finite ? `${many(curve.non_finite, "value")} not finite` : "")));
  show(section, heading("Loss, and what it cost"),
    h("p", { class: "soft small" }, "The tinted span is where a policy holds; the hatched part of the cost came in that time."),
    h("div", { class: "jobs" }, all.jobs.map((job) => h("article", { class: "job", "data-key": job.job },
      h("h3", null, "job ", name(job.job), job.policy ? h("span", null, ` · ${job.policy}`) : null),
      h("div", { role: "img", "aria-label": `Loss and cumulative cost of job ${job.job}; the numbers are in the table below` },
        h("div", { class: "curve loss", "data-mine": true }), h("div", { class: "curve cost", "data-mine": true })),
      h("table", { class: "numbers" }, h("tbody", null, numbers(job)))))));
  drawCharts(section, all);
}

function heat(all) {
  if (!all.groups.length) return show(place("heat"));
  show(place("heat"), heading(`GPU use, ${all.begin} to ${all.end}`),
    h("p", { class: "scale small" }, h("span", null, "idle 0%", h("i", { class: "ramp" }), "100% busy"), h("span", null, h("i", { class: "spans" }), "idle: under 5%"),
      h("span", null, h("i", { class: "unseen" }), "not known"), h("span", null, `one row a GPU, one column ${all.column}`)),
    all.groups.map((one) => h("div", { class: "group", "data-key": one.job },
      h("div", null, h("b", null, name(one.job)), h("br"), h("small", null, `${many(one.gpus, "GPU")}${one.where ? ` on ${one.where}` : ""}, mean ${one.mean}`)),
      h("div", { role: "img", "aria-label": `GPU use of ${one.job}: mean ${one.mean}, idle ${one.idle}, seen ${one.seen}; the numbers are in the table below` }, picture(one.picture)))),
    h("div", { class: "group", "data-key": " axis" }, h("div"), h("div", { "aria-hidden": "true" }, picture(all.axis))),
    all.left_out ? h("p", { class: "soft" }, `${many(all.left_out, "busier GPU")} not shown.`) : null,
    h("details", null, h("summary", null, "The numbers, GPU by GPU"), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "GPU by GPU" },
      h("table", null, head(["GPU"], ["job"], ["host"], ["mean use", 1], ["idle", 1], ["seen", 1]), h("tbody", null, all.rows.map((row) =>
        h("tr", { "data-key": row.gpu }, h("td", null, name(row.gpu)), h("td", null, name(row.job)), h("td", null, name(row.host)),
          ...[row.mean, row.idle, row.seen].map((value) => h("td", { class: "n" }, value)))))))));
}

function top(all) {
  const whom = all.you.team ? ` · team ${all.you.team}` : "";
  place("when").textContent = all.ready ? `${all.when} · ${all.scope} · mode ${all.mode}${whom}` : "nothing has been evaluated yet";
  const now = all.ready ? all.figures[0].value : "";
  document.title = all.ready ? `${now} · stoploss` : "stoploss";
  trouble([all.late ? `Not in time: ${all.late}.` : "", all.standby ? "On standby: another one ticks." : "", all.paused !== null ? `Paused: ${all.paused}.` : ""].filter(Boolean).join(" "));
  const news = all.ready ? `${many(all.firing, "finding")}, ${now}; ${many(all.waiting, "approval")} waiting` : "";
  if (place("news").textContent !== news) place("news").textContent = news;
}

async function refresh() {
  clearTimeout(timer);
  let wait = 15;
  try {
    const all = await ask("v1/overview");
    reached = new Date();
    document.body.classList.remove("old");
    place("enter").hidden = true;
    wait = Math.min(300, Math.max(5, all.interval_seconds));
    top(all);
    if (all.ready) {
      place("main").hidden = false;
      for (const part of [figures, findings, plan, causes, unknown, ledger, how]) part(all);
      if (shown.at !== all.at) {
        const [jobs, map] = await Promise.all([ask("v1/jobs"), ask("v1/heat")]);
        pictures = jobs;
        curves(jobs);
        heat(map);
      }
      shown = all;
    }
  } catch (problem) {
    document.body.classList.add("old");
    if (problem.status === 401) {
      wait = null;
      place("main").hidden = true;
      place("when").textContent = "";
      trouble(sessionStorage.getItem(KEY) ? "This token is none of ours." : "");
      sessionStorage.removeItem(KEY);
      place("enter").hidden = false;
      place("token").focus();
    } else {
      const since = reached ? ` What is shown was asked for at ${reached.toLocaleTimeString()}.` : "";
      trouble(`${problem.status ? problem.message : "stoploss cannot be reached"}.${since}`);
    }
  }
  if (wait !== null) timer = setTimeout(refresh, wait * 1000);
}

async function decide(button) {
  const box = button.closest(".ask, .switch"), said = box.querySelector(".said"), field = box.querySelector("input");
  const { act, id } = button.dataset, reason = field.value.trim();
  if (!reason && act !== "approve" && act !== "resume") {
    said.textContent = "Give a reason; it is written into the ledger.";
    field.focus();
    return;
  }
  // A button that is disabled would lose the focus.
  if (button.dataset.busy) return;
  const path = id ? `v1/approvals/${encodeURIComponent(id)}/${act}` : `v1/${act}`;
  button.dataset.busy = "yes";
  try {
    await ask(path, reason ? { reason } : {});
    said.textContent = id ? "written down" : "";
    field.value = "";
    await refresh();
  } catch (problem) {
    said.textContent = problem.message;
  }
  delete button.dataset.busy;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-act]");
  if (!button) return;
  if (button.dataset.act === "forget") { sessionStorage.removeItem(KEY); location.reload(); }
  else decide(button);
});
place("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, place("token").value.trim());
  place("token").value = "";
  refresh();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (pictures) drawCharts(place("curves"), pictures); });
refresh();
