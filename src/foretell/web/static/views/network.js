// Network: one collective on a system, its algorithm and why, and bandwidth over sizes.

import { assumed, facts, h, named, noCard, scenarioCard, shown, surely, tableOf, withUsual, word } from "./shared.js";
import { nameOf } from "../own.js";

const ASKED = ["system", "collective", "bytes", "group"];
const USUAL = { collective: "all-reduce", bytes: "64MiB", group: 64 };

export default {
  title: "Network",
  groups: () => [["", ["system", "collective", "bytes", "group"]]],

  async show(desk) {
    const questions = desk.names.map((_, i) => withUsual(desk.flags(ASKED, i), USUAL));
    const told = await desk.each((i) => desk.ask("network", questions[i]));
    desk.put("trouble");
    desk.put("summary", told.map((answer, i) => (answer.candidates_s ? card(answer, i) : noCard(i, answer, nameOf(questions[i].system, "your system"), "Not possible"))));
    const good = questions.map((question, i) => (told[i].candidates_s ? question : null));
    await desk.figureOf("bandwidths", "Bus bandwidth over the size of a message", good, desk.names, { wide: true });
    const active = told[desk.at];
    desk.put("candidates", tableOf(active, "Algorithms offered here"));
    desk.put("assumed", assumed(told));
    desk.export(told.map((answer, i) => ({ name: desk.names[i], verb: "network", flags: questions[i], answer })).filter(({ answer }) => answer.candidates_s));
    return "";
  },
};

function card(answer, i) {
  const places = Object.entries(answer.placement).filter(([, many]) => many > 1).map(([tier, many]) => `${many} per ${tier}`).join(" × ");
  return scenarioCard(i, `${answer.collective} on ${answer.system}`,
    h("p", { class: "big" }, named(answer, "seconds")),
    h("p", { class: "quiet" }, word("90 % interval", "interval"), ` ${surely(answer, "seconds")}`),
    h("p", { class: "quiet" }, named(answer, "size_bytes"), ` among ${answer.group}${places ? `: ${places}` : ""}`),
    facts([
      ...shown(answer, ["seconds", "size_bytes", "algorithm"]),
      ["Algorithm", answer.algorithm],
      ["Because", answer.reason],
    ]));
}
