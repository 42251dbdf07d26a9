// What drafts: tokens by source, and what the experiments found of the arms, the ways of drafting.
import { bar, byId, count, element, fixed, keep, percent, setBar, setText } from "./elements.js";

export function showSources(sources) {
  keep(byId("sources"), sources, (source) => source.name, (source) => makeRow(source.name), (li, { num_drafted, num_accepted }) => {
    setText(li.querySelector(".what"), `${count(num_accepted)} of ${count(num_drafted)}`);
    setBar(li, num_drafted ? fixed(num_accepted / num_drafted, 2) : "–", num_drafted ? num_accepted / num_drafted : 0);
  });
}

export function showArms(arms) {
  setText(byId("arms-about"), arms.length ? "ways of drafting: tokens per second over the best one’s, share of time" : "no other way of drafting is tried");
  keep(byId("arms"), arms, (row) => row.arm, (row) => makeRow(row.arm), (li, row) => {
    li.className = row.is_best ? "best" : "";
    setText(li.querySelector(".what"), rate(row));
    setBar(li, percent(row.share), row.share);
  });
}

const makeRow = (name) => element("li", "", element("span", "", name), element("span", "what"), bar());

function rate({ is_best, relative_rate, standard_error }) {
  if (is_best) return "best";
  if (relative_rate === null) return "not compared yet";
  return `${fixed(relative_rate, 2)} ± ${fixed(relative_rate * standard_error, 2)}`;
}
