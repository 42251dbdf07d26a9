// What happened over the last seconds, by the counters of the snapshots. The history is this page's own: nobody keeps it for us.
const WINDOW_S = 10;
let marks = [];

// Takes a snapshot; returns rates since the oldest of the last seconds, all 0 for the first one, and of each client by name.
export function look(snapshot) {
  const isRecent = ({ at, node }) => node.boot_id === snapshot.node.boot_id && at <= snapshot.at && snapshot.at - at <= WINDOW_S;
  marks = [...marks.filter(isRecent), snapshot];
  const [old] = marks;
  const overS = snapshot.at - old.at;
  const [numRounds, numTokens, numDrafted] = ["num_rounds", "num_tokens", "num_drafted"].map((name) => snapshot[name] - old[name]);
  const firstRows = new Map([...marks].reverse().flatMap(({ clients }) => clients.map((row) => [row.name, row])));
  const ofClient = (row) => ({
    drafted_per_round: ratio(row.num_drafted - firstRows.get(row.name).num_drafted, numRounds),
    share: ratio(row.num_tokens - firstRows.get(row.name).num_tokens, numTokens),
  });
  return {
    over_s: overS,
    rounds_per_s: ratio(numRounds, overS),
    tokens_per_s: ratio(numTokens, overS),
    drafted_per_round: ratio(numDrafted, numRounds),
    wall_s: wallTime(old.wall_s, snapshot.wall_s, overS),
    clients: new Map(snapshot.clients.map((row) => [row.name, ofClient(row)])),
  };
}

// A wait is counted when it ends, even if it began before this time: at most the time that was not busy counts.
function wallTime(before, after, overS) {
  const spent = Object.fromEntries(Object.entries(after).map(([phase, seconds]) => [phase, seconds - before[phase]]));
  const { receive, ...busy } = spent;
  const busyS = Object.values(busy).reduce((sum, seconds) => sum + seconds, 0);
  return { ...spent, receive: Math.min(receive, Math.max(0, overS - busyS)) };
}

const ratio = (number, of) => (of ? number / of : 0);
