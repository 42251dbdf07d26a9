"""The `math` domain: arithmetic word problems, each with a worked answer."""

from random import Random

NAMES = (
    "Maya Tom Ines Omar Lena Paul Rosa Finn Aiko Marc Nora Igor Zoe Hugo Leila Sven Clara Amir Greta Dario Wanda Felix "
    "Yuki Bruno Alma Kofi Tessa Ravi Petra Jonas"
).split()
THINGS = (
    "apples pencils books stamps marbles oranges cards shells buttons coins stickers eggs candles bottles tickets "
    "flowers cookies stones beads postcards"
).split()
HOLDERS = "bags boxes baskets jars packets trays crates drawers".split()
SHOPS = "a bakery,a book shop,a market stall,a school,a library,a farm,a garden centre,a museum,a cinema".split(",")


def gain_and_loss(rng: Random, name: str, thing: str) -> tuple[str, str, str]:
    start, gain = rng.randint(5, 60), rng.randint(2, 40)
    loss = rng.randint(1, start + gain - 1)
    verb = rng.choice(["gives away", "loses", "sells", "uses"])
    ask = f"{name} has {start} {thing}, finds {gain} more, and then {verb} {loss}. How many {thing} are left?"
    work = f"{start} + {gain} = {start + gain}. {start + gain} - {loss} = {start + gain - loss}."
    return ask, work, f"{start + gain - loss} {thing}"


def groups(rng: Random, name: str, thing: str) -> tuple[str, str, str]:
    holder, count, each, extra = rng.choice(HOLDERS), rng.randint(2, 12), rng.randint(2, 12), rng.randint(1, 30)
    ask = f"{name} fills {count} {holder} with {each} {thing} each and keeps {extra} more. How many {thing} is that?"
    work = f"{count} x {each} = {count * each}. {count * each} + {extra} = {count * each + extra}."
    return ask, work, f"{count * each + extra} {thing}"


def sharing(rng: Random, name: str, thing: str) -> tuple[str, str, str]:
    friends, each = rng.randint(2, 12), rng.randint(2, 12)
    rest = rng.randint(0, friends - 1)
    total = friends * each + rest
    ask = f"{name} shares {total} {thing} equally among {friends} friends. How many does each get, and how many remain?"
    work = f"{friends} x {each} = {friends * each}. {total} - {friends * each} = {rest}."
    return ask, work, f"{each} each, {rest} left over"


def prices(rng: Random, name: str, thing: str) -> tuple[str, str, str]:
    count, price = rng.randint(2, 9), rng.randint(2, 12)
    paid = (count * price // 10 + rng.randint(1, 4)) * 10
    ask = f"{name} buys {count} {thing} at {price} euros each and pays with {paid} euros. How much change is there?"
    work = f"{count} x {price} = {count * price}. {paid} - {count * price} = {paid - count * price}."
    return ask, work, f"{paid - count * price} euros"


def travel(rng: Random, name: str, thing: str) -> tuple[str, str, str]:
    speed, hours, done = rng.randint(2, 12) * 5, rng.randint(2, 9), rng.randint(5, 40)
    means = rng.choice(["cycles", "drives", "rides", "travels by train"])
    ask = f"{name} {means} {done} km before lunch, then {hours} hours at {speed} km per hour. How far is it in all?"
    work = f"{hours} x {speed} = {hours * speed}. {hours * speed} + {done} = {hours * speed + done}."
    return ask, work, f"{hours * speed + done} km"


def comparison(rng: Random, name: str, thing: str) -> tuple[str, str, str]:
    other = rng.choice([n for n in NAMES if n != name])
    first, more = rng.randint(5, 50), rng.randint(2, 30)
    ask = f"{name} has {first} {thing}. {other} has {more} more than {name}. How many do they have together?"
    work = f"{first} + {more} = {first + more}. {first} + {first + more} = {2 * first + more}."
    return ask, work, f"{2 * first + more} {thing}"


def week(rng: Random, name: str, thing: str) -> tuple[str, str, str]:
    shop, per_day, days, sold = rng.choice(SHOPS), rng.randint(3, 20), rng.randint(2, 7), rng.randint(1, 20)
    per_day = max(per_day, sold // days + 1)
    ask = f"{name} brings {per_day} {thing} to {shop} every day for {days} days. {sold} are sold. How many remain?"
    work = f"{days} x {per_day} = {days * per_day}. {days * per_day} - {sold} = {days * per_day - sold}."
    return ask, work, f"{days * per_day - sold} {thing}"


KINDS = (gain_and_loss, groups, sharing, prices, travel, comparison, week)


def document(rng: Random) -> str:
    """Four to eight problems, numbered, in the layout `Problem`, `Working`, `Answer`."""
    problems = []
    for number in range(1, rng.randint(4, 8) + 1):
        ask, work, answer = rng.choice(KINDS)(rng, rng.choice(NAMES), rng.choice(THINGS))
        problems.append(f"Problem {number}: {ask}\nWorking: {work}\nAnswer: {answer}.\n")
    return "\n".join(problems)
