// What drafts: tokens by source.
import { bar, byId, count, element, fixed, keep, percent, setBar, setText } from "./elements.js";

export function showSources({ sources }) {
  keep(byId("sources"), sources, (source) => source.name, (source) => makeRow(source.name), (li, { num_drafted, num_accepted }) => {
    setText(li.querySelector(".what"), `${count(num_accepted)} of ${count(num_drafted)}`);
    setBar(li, num_drafted ? fixed(num_accepted / num_drafted, 2) : "–", num_drafted ? num_accepted / num_drafted : 0);
  });
}

const makeRow = (name) => element("li", "", element("span", "", name), element("span", "what"), bar());
