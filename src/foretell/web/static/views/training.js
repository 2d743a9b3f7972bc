// Training: the best plan of each scenario, where its time and memory go, what limits it, how sure that is.

import { partName, table } from "../dom.js";
import { differences } from "./differences.js";
import { assumed, before, facts, fits, h, headingOf, howSure, memoryMeter, named, noCard, number, peak, planned, reasons, scenarioCard, shown, surely, tableOf, word } from "./shared.js";

export default {
  title: "Training",
  groups: () => [["", ["model", "system", "gpus", "global_batch", "seq_len", "tokens", "plan", "framework", "precision", "tp", "pp", "ep", "zero"]], ["More", ["measured", "set"]]],

  async show(desk) {
    const told = await desk.each((i) => planned(desk, i));
    desk.put("trouble");
    desk.put("summary", told.map((answer, i) => (answer.step_s ? card(answer, i) : noCard(i, answer, headingOf(answer, desk.flags(["model", "system", "gpus"], i))))));
    desk.put("difference", differences(told, METRICS, PARTS));
    desk.put("limits");
    const questions = told.map((answer) => (answer.breakdown ? answer.exact : null));
    const active = told[desk.at];
    const work = [
      // Of one scenario every share with what it follows; of several a bar each.
      desk.figureOf("time", "Where the time goes", questions.map(step), desk.names, { kind: told.length === 1 && active?.fits !== "no" ? "shares" : "time" }),
      desk.figureOf("memory", "Where the memory goes", questions, desk.names),
    ];
    if (active?.exact && active.fits !== "no") work.push(limits(desk, active));
    await Promise.all(work);
    desk.put("plans", active?.found ? plans(active.found, desk) : "", active?.run ? tableOf(active, "The whole run") : "");
    desk.put("assumed", assumed(told));
    desk.export(told.map((answer, i) => ({ name: desk.names[i], verb: "estimate", flags: answer.flags, answer, exact: answer.exact })).filter(({ answer }) => answer.step_s));
    const searched = told.reduce((many, answer) => many + (answer.found?.plans_evaluated ?? 0), 0);
    return searched ? `best of ${number(searched, "count").textContent} plans` : "plan as given";
  },
};

const tree = (name) => (answer) => Object.fromEntries((answer[name]?.children ?? []).map((part) => [part.name, part.value]));
const METRICS = [["Step time", "s", (a) => a.step_s], ["Tokens/s per GPU", "count", (a) => a.tokens_per_s_per_gpu], ["MFU", "share", (a) => a.mfu],
  ["Peak memory", "bytes", (a) => a.peak_memory_bytes], ["Energy of a step", "J", (a) => a.energy_joules], ["Whole run", "s", (a) => (a.run?.days === undefined ? null : a.run.days * 86400)]];
const PARTS = [["Where the time of a step differs", "s", tree("breakdown")], ["Where the memory differs", "bytes", tree("memory")]];

function step(question) {
  if (!question) return null;
  const { tokens, ...place } = question;
  return place;
}

function card(answer, i) {
  return scenarioCard(i, headingOf(answer, {}),
    h("p", { class: "big" }, named(answer, "step_s"), h("small", {}, " per step "), fits(answer)),
    h("p", { class: "quiet" }, word("90 % interval", "interval"), ` ${surely(answer, "step_s")}`),
    howSure(answer),
    answer.refusals?.length ? reasons(answer.refusals.map((text) => ({ path: frameworkOf(answer.plan), message: `cannot run this plan: ${text}` }))) : "",
    h("p", { class: "plan", "data-name": "plan" }, answer.plan),
    facts([
      ...before(answer, answer.prior?.step_s, "s"),
      ...shown(answer, ["step_s", "peak_memory_bytes", "memory_capacity_bytes"]),
      [word("peak memory"), peak(answer, " of ", named(answer, "memory_capacity_bytes"), " ", fits(answer))],
    ]), memoryMeter(answer), answer.problems?.length ? reasons(answer.problems) : "");
}

// The framework that a plan names.
function frameworkOf(plan) {
  return /framework=(\S+)/.exec(plan)?.[1] ?? "The framework";
}

async function limits(desk, answer) {
  const { tokens, ...place } = answer.exact;
  const told = await desk.ask("explain", place);
  desk.put("limits", h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, `What limits ${desk.names[desk.at]}`)),
    h("ul", { class: "said" }, told.conclusions.map((text) => h("li", {}, text)))));
}

// Plans that differ by their ZeRO stage or virtual stages alone are one row, of the fastest.
function families(plans) {
  const seen = new Map();
  for (const row of plans) {
    const family = row.plan.replace(/\b(zero|vpp|mbs)\d+ ?/g, "");
    if (seen.has(family)) seen.get(family).alike += 1;
    else seen.set(family, { ...row, alike: 1 });
  }
  return [...seen.values()];
}

function plans(found, desk) {
  const rows = families(found.plans);
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, `Best plans of ${desk.names[desk.at]}`)),
    table(`${number(found.plans_evaluated, "count").textContent} evaluated, ${number(found.plans_feasible, "count").textContent} fit`, [
      { title: "plan", word: "plan", of: (row) => h("code", {}, row.plan) },
      { title: "step", unit: "s", of: (row) => row.step_s },
      { title: "against the best", unit: "signed", of: (row) => row.step_s / rows[0].step_s - 1 },
      { title: "MFU", word: "mfu", unit: "share", of: (row) => row.mfu },
      { title: "peak memory", unit: "bytes", of: (row) => row.peak_memory_bytes },
      { title: "largest part", of: (row) => partName(row.limited_by) },
      { title: "runs with", of: (row) => (row.launchable_with ?? []).join(", ") },
      { title: "alike", unit: "count", of: (row) => row.alike },
    ], rows, (row) => row === rows[0]));
}
