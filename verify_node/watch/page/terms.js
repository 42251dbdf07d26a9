// Labels that lead to their sentence in "What the words mean", and show it to a pointer that rests on them.
import { byId, element } from "./elements.js";

// A label; `word` names an element `word-...` of the page.
export function term(label, word, classes = "") {
  const made = element("a", `term ${classes}`.trim(), label);
  made.href = `#word-${word}`;
  explain(made);
  return made;
}

function explain(one) {
  one.title = byId(one.hash.slice(1)).textContent;
}

for (const one of document.querySelectorAll(".term")) explain(one);
document.addEventListener("click", (event) => {
  if (event.target.closest(".term")) byId("words").open = true; // before the browser goes there
});
