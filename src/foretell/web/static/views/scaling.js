// Scaling: throughput of strategies over numbers of GPUs, and where and why it stops.

import { showing } from "../api.js";
import { assumed, facts, h, named, noCard, scenarioCard, show, surely, tableOf, withUsual } from "./shared.js";
import { nameOf } from "../own.js";

const ASKED = ["system", "counts", "strategies", "seq_len", "micro_batch", "floor", "set"];
// Beside the usual ones some that a model fits with which is too large for them.
const STRATEGIES = "zero1,zero3,tp8 zero1,tp8 pp4 zero1";

export default {
  title: "Scaling",
  groups: ({ mode = "" }) => [["", ["model", "system", "counts", "strategies"]],
    ["Batch", ["mode", mode ? "held_batch" : "batch_per_gpu", "micro_batch", "seq_len", "floor"]], ["More", ["set"]]],

  async show(desk) {
    const questions = desk.names.map((_, i) => question(desk, i));
    const told = await desk.each((i) => desk.ask("scaling", questions[i]));
    desk.put("trouble");
    desk.put("summary", told.map((answer, i) => (answer.curves ? card(answer, i) : noCard(i, answer, questions[i].models.map((one) => nameOf(one, "your model")).join(", "), "No strategy fits"))));
    const active = told[desk.at];
    desk.put("stops", active.curves ? stops(active, desk.names[desk.at]) : "");
    const good = questions.map((asked, i) => (told[i].curves ? asked : null));
    await Promise.all([
      desk.figureOf("scaling", "Tokens a second of one GPU", good, desk.names),
      desk.figureOf("scaling-efficiency", "Efficiency, against the fewest GPUs without waiting", good, desk.names),
    ]);
    desk.put("points", tableOf(active, "Every point", `Every point of ${desk.names[desk.at]}`));
    desk.put("assumed", assumed(told));
    desk.export(told.map((answer, i) => ({ name: desk.names[i], verb: "scaling", flags: questions[i], answer })).filter(({ answer }) => answer.curves));
    return "";
  },
};

function question(desk, i) {
  const { mode } = desk.flags(["mode"], i);
  const { model } = desk.flags(["model"], i);
  const batch = mode ? { mode, global_batch: 1024, ...desk.flags(["held_batch"], i) } : desk.flags(["batch_per_gpu"], i);
  return { models: model ? [model] : [], ...withUsual(desk.flags(ASKED, i), { strategies: STRATEGIES }), ...batch };
}

function card(answer, i) {
  const all = answer.curves.flatMap((curve) => curve.points).filter((point) => point.tokens_per_s !== null && point.fits !== "no");
  const most = all.reduce((best, point) => (best && best.tokens_per_s >= point.tokens_per_s ? best : point), null);
  const told = showing({ ...answer, tokens_per_s: most?.tokens_per_s }, answer.presentation);
  const reach = (curve) => (curve.fits_from === null ? "fits on none" : curve.stops_at === null ? `to ${show(curve.scales_to, "count")} GPUs and beyond`
    : curve.scales_to === null ? "not at all" : `to ${show(curve.scales_to, "count")} GPUs`);
  return scenarioCard(i, `${answer.curves[0].model} on ${answer.system}`,
    h("p", { class: "big" }, most ? [named(told, "tokens_per_s"), h("small", {}, " tokens/s")] : "No strategy fits"),
    h("p", { class: "quiet" }, most ? `at most: ${most.strategy} on ${show(most.gpus, "count")} GPUs, 90 % interval ${surely(answer, "tokens_per_s")}` : ""),
    h("p", { class: "quiet" }, `${answer.mode} scaling, sequences of ${show(answer.seq_len, "count")}; above ${show(answer.floor, "share")}:`),
    facts(answer.curves.map((curve) => [curve.strategy, reach(curve)])));
}

function stops(answer, name) {
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, `Where ${name} stops, and why`)),
    h("ul", { class: "said" }, answer.curves.map((curve) => h("li", {}, h("strong", {}, `${curve.strategy}: `), curve.why))));
}
