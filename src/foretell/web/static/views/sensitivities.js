// Sensitivities: what would move a result, the plan held.

import { table } from "../dom.js";
import { facts, h, headingOf, noCard, number, planned, scenarioCard } from "./shared.js";

export default {
  title: "Sensitivities",
  groups: () => [["", ["model", "system", "gpus", "global_batch", "seq_len", "plan", "of"]], ["More", ["set"]]],

  async show(desk) {
    const told = await desk.each(async (i) => {
      const plan = await planned(desk, i);
      if (!plan.step_s || plan.fits === "no") return plan;
      const flags = { ...plan.exact, ...desk.flags(["of"], i) };
      return { ...plan, asked: flags, moved: await desk.ask("sensitivity", flags) };
    });
    desk.put("trouble");
    desk.put("summary", told.map((answer, i) => (answer.moved ? card(answer, i) : noCard(i, answer, headingOf(answer, desk.flags(["model", "system", "gpus"], i))))));
    const active = told[desk.at];
    await desk.figureOf("tornado", `What would move ${desk.names[desk.at]}`, [active.asked ?? null], [desk.names[desk.at]], { wide: true });
    desk.put("elasticities", active.moved ? rows(active.moved) : "");
    desk.take(told.map((answer, i) => ({ name: desk.names[i], verb: "sensitivity", flags: answer.asked, answer: answer.moved })).filter(({ answer }) => answer));
    return "";
  },
};

function card(answer, i) {
  const [first, second] = answer.moved.elasticities.filter((row) => row.kind !== "joint");
  const said = (row) => [row.words, h("span", {}, number(row.what_if_ratio - 1, "signed"), " when twice as good")];
  return scenarioCard(i, headingOf(answer, {}),
    h("p", { class: "big" }, number(answer.moved.value, answer.moved.result === "step_s" ? "s" : answer.moved.result === "energy_joules" ? "J" : "count", "value"), h("small", {}, answer.moved.result === "step_s" ? " a step" : "")),
    h("p", { class: "plan", "data-name": "plan" }, answer.plan), facts([first && said(first), second && said(second)]));
}

function rows(moved) {
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "Every number of the system")),
    table("The plan is held: nothing is searched again", [
      { title: "number", of: (row) => row.words },
      { title: "path", of: (row) => h("code", {}, row.path) },
      { title: "elasticity", word: "elasticity", unit: "count", of: (row) => row.elasticity },
      { title: "twice as good", word: "what-if", unit: "signed", of: (row) => row.what_if_ratio - 1 },
    ], moved.elasticities));
}
