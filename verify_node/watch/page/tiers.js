// Service levels: of each tier the share of texts that were in time, and who is behind.
import { bar, byId, count, element, keep, percent, setBar, setText } from "./elements.js";

export function showTiers(tiers) {
  byId("tiers-card").hidden = tiers.length === 0;
  keep(byId("tiers"), tiers, (row) => row.name, makeRow, (li, row) => {
    setText(li.querySelector(".what"), [inTime(row), goingOn(row), causes(row)].filter(Boolean).join(" · "));
    const share = row.num_judged ? row.num_attained / row.num_judged : 0;
    setBar(li, row.num_judged ? percent(share) : "–", share);
  });
}

const makeRow = (row) => element("li", "", element("span", "", row.name), element("span", "what"), bar());

const inTime = (row) => (row.num_judged ? `${count(row.num_attained)} of ${count(row.num_judged)} in time` : "none complete");

function goingOn(row) {
  if (!row.num_open) return "";
  const names = row.behind.length ? ` (${row.behind.join(", ")})` : "";
  const promised = row.num_promised ? `, ${count(row.num_promised)} promised` : "";
  return `${count(row.num_open)} open${promised}, ${count(row.num_behind)} behind${names}`;
}

function causes(row) {
  const told = Object.entries(row.causes).map(([cause, number]) => `${cause} ${count(number)}`);
  return told.length ? `late by ${told.join(", ")}` : "";
}
