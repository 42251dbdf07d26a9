"""The `chat` domain: User and Assistant turns in the family's plain chat format.

The chat template of the family's tokenizer writes the same format; a test compares the two.
"""

from random import Random

CAPITALS = {
    "France": "Paris", "Japan": "Tokyo", "Peru": "Lima", "Norway": "Oslo", "Egypt": "Cairo", "Italy": "Rome",
    "Kenya": "Nairobi", "Spain": "Madrid", "Cuba": "Havana", "Greece": "Athens", "Ireland": "Dublin",
    "Austria": "Vienna", "Poland": "Warsaw", "Portugal": "Lisbon", "Chile": "Santiago", "Finland": "Helsinki",
}  # fmt: skip
OPPOSITES = {
    "hot": "cold", "big": "small", "early": "late", "heavy": "light", "open": "closed", "loud": "quiet",
    "fast": "slow", "wet": "dry", "full": "empty", "young": "old", "soft": "hard", "cheap": "expensive",
}  # fmt: skip
SKILLS = "cooking,drawing,swimming,chess,gardening,photography,singing,knitting,cycling,writing,dancing,sewing".split(
    ","
)
DISHES = (
    "a vegetable soup,an omelette,a pasta salad,a lentil stew,pancakes,fried rice,a fruit salad,a bean curry".split(",")
)
FOODS = "onions,carrots,rice,eggs,tomatoes,beans,potatoes,cheese,spinach,mushrooms,peppers,garlic,noodles".split(",")
PLACES = "the mountains,the coast,an old town,a big city,a quiet village,the lake,a national park".split(",")
REASONS = (
    "it is easy to begin with,it does not cost much,you can do it with friends,it helps you to relax,"
    "you learn something new each time,it can be done at home,it keeps you active"
).split(",")
STEPS = (
    "Start with ten minutes a day.,Choose a fixed time for it.,Ask a friend to join you.,Write down what went well.,"
    "Begin with the simplest exercises.,Watch how others do it.,Do not worry about mistakes.,"
    "Take a break when you are tired.,Set a small goal for each week.,Keep your tools in one place."
).split(",")
ITEMS = (
    "a warm jacket,good shoes,a map,a bottle of water,some snacks,a hat,a camera,a small first-aid kit,a raincoat,"
    "a book,sunglasses,a torch,a spare pair of socks"
).split(",")
OPENERS = "Good question.,Sure.,Of course.,Happy to help.,Yes.,Certainly.,Let me think.,Gladly.".split(",")
CLOSERS = (
    "Let me know how it goes.,Would you like more ideas?,I hope that helps.,Tell me if you need more detail.,"
    "Have fun!,Take your time."
).split(",")

Turn = tuple[str, str]


def listing(items: list[str]) -> str:
    return ", ".join(items[:-1]) + " and " + items[-1]


def capital(rng: Random) -> Turn:
    country = rng.choice(list(CAPITALS))
    return f"What is the capital of {country}?", f"The capital of {country} is {CAPITALS[country]}."


def opposite(rng: Random) -> Turn:
    word = rng.choice(list(OPPOSITES))
    return f'What is the opposite of "{word}"?', f'The opposite of "{word}" is "{OPPOSITES[word]}".'


def learning(rng: Random) -> Turn:
    skill, steps = rng.choice(SKILLS), rng.sample(STEPS, rng.randint(2, 4))
    ask = rng.choice([f"How do I get better at {skill}?", f"I want to learn {skill}. Where do I start?"])
    numbered = "\n".join(f"{i}. {step}" for i, step in enumerate(steps, 1))
    return ask, f"{rng.choice(OPENERS)} Here are some steps for {skill}:\n{numbered}\n{rng.choice(CLOSERS)}"


def hobby(rng: Random) -> Turn:
    first, second = rng.sample(SKILLS, 2)
    reasons = rng.sample(REASONS, 2)
    ask = rng.choice([f"Should I take up {first} or {second}?", f"Which is better, {first} or {second}?"])
    return ask, (
        f"Both are good choices. With {first}, {reasons[0]}. With {second}, {reasons[1]}. "
        f"If you cannot decide, try {rng.choice([first, second])} first. {rng.choice(CLOSERS)}"
    )


def cooking(rng: Random) -> Turn:
    dish, foods = rng.choice(DISHES), rng.sample(FOODS, rng.randint(3, 5))
    minutes = rng.randint(2, 9) * 5
    ask = rng.choice([f"I have {listing(foods)}. What can I cook?", f"Can I make {dish} with {listing(foods)}?"])
    return ask, (
        f"{rng.choice(OPENERS)} You can make {dish}. Wash and cut the {foods[0]}, then add the {foods[1]} and cook "
        f"them for {minutes} minutes. Put in the {foods[2]} at the end, and season to taste. {rng.choice(CLOSERS)}"
    )


def packing(rng: Random) -> Turn:
    place, days, items = rng.choice(PLACES), rng.randint(2, 14), rng.sample(ITEMS, rng.randint(3, 5))
    ask = f"I am going to {place} for {days} days. What should I take with me?"
    return ask, (
        f"For {days} days in {place}, take {listing(items)}. The weather may change, so {items[0]} is the most "
        f"important. {rng.choice(CLOSERS)}"
    )


def spelling(rng: Random) -> Turn:
    word = rng.choice(list(OPPOSITES) + [c.lower() for c in FOODS])
    letters = "-".join(word)
    return f'How do you spell "{word}"?', f'"{word}" is spelled {letters}. It has {len(word)} letters.'


def favourite(rng: Random) -> Turn:
    place, items = rng.choice(PLACES), rng.sample(REASONS, 2)
    ask = f"Why do people like {place} so much?"
    closing = rng.choice(["It is not for everyone, though.", "Many come back every year.", "I would go in spring."])
    return ask, f"{rng.choice(OPENERS)} People like {place} because there is a lot to see. Also, {items[0]}. {closing}"


KINDS = (learning, hobby, cooking, packing, favourite, capital, opposite, spelling)
WEIGHTS = (4, 3, 4, 3, 3, 2, 2, 1)


def render(turns: list[Turn]) -> str:
    return "\n\n".join(f"User: {user}\n\nAssistant: {assistant}" for user, assistant in turns) + "\n\n"


def document(rng: Random) -> str:
    """Four to eight turns of one conversation."""
    return render([rng.choices(KINDS, WEIGHTS)[0](rng) for _ in range(rng.randint(4, 8))])
