"""Requests of a chat: to write, to play a role, to reason, to explain, to compare, and to find things in a text."""

from random import Random

from training.prompts.words import CITIES, COUNTRIES, FIRST_NAMES, LIVING, SCIENCE, SOCIETY, TECHNOLOGY, TOPICS

ROLES = (
    "a doctor, a pirate captain, a history teacher, a travel guide, a chef, a detective, a math tutor, a life coach, "
    "an astronaut, a poet, a lawyer, a software engineer, a farmer, a medieval knight, a robot from the future, "
    "a relationship coach, a news reporter, a financial advisor, a personal trainer, a museum curator, a wise old "
    "tree, "
    "a famous scientist, a stand-up comedian, a librarian, a sports commentator, a ghost in an old castle, a film "
    "critic"
).split(", ")
GOALS = (
    "the quarterly sales report, a missed deadline, a vacation request, a new project proposal, a team meeting, "
    "a salary increase, a customer complaint, a product launch, an internship, a delayed shipment, a thank-you note, "
    "a conference invitation, an overdue invoice, a job application, a change of address, a broken laptop"
).split(", ")
PEOPLE = "your manager, a colleague, a customer, your landlord, a professor, a friend, your neighbor, the whole team"
FORMS = (
    "a short story, a poem, a haiku, a limerick, a blog post, a persuasive essay, a song, a product description, "
    "a movie review, a speech, a dialogue, a fairy tale, a news article, a list of slogans, an opening paragraph"
).split(", ")
SUBJECTS = (
    "a lonely lighthouse keeper, a dragon who is afraid of fire, two rival bakers, a city under the sea, a lost "
    "letter, "
    "a robot that learns to dream, the last tree on earth, a time traveler, a talking cat, an old train station, "
    "a storm at sea, a childhood friendship, a magic paintbrush, autumn leaves, the first day of school, a secret "
    "garden"
).split(", ")
LIMITS = (
    "", "", "", " Use at most five sentences.", " Be concise.", " Keep it short and to the point.",
    " Use simple language.", " Give examples.", " Please explain step by step.", " Write about three paragraphs.",
    " Answer in one paragraph.", " Use bullet points.",
)  # fmt: skip
AUDIENCES = "a five-year-old, a beginner, a high school student, an expert, my grandmother, a busy "
"manager".split(", ")
PLACES = "the kitchen, the park, school, the office, a concert, the beach, the library, a wedding".split(", ")


def write(random: Random) -> str:
    """Returns a request."""
    return random.choice(KINDS)(random) + random.choice(LIMITS)


def _explain(random: Random) -> str:
    topic, other = random.sample(TOPICS, 2)
    form = random.choice((
        "Explain {a} to {audience}.", "What is the history of {a}?", "How does {a} affect our daily lives?",
        "Describe five key principles of {a}.", "What are the main advantages and disadvantages of {a}?",
        "Can you explain {a} in simple terms?", "What is the relationship between {a} and {b}?",
        "What are some common misconceptions about {a}?", "Give me an overview of {a}.", "Why is {a} important?",
        "Compare {a} and {b}.", "What should I know about {a}?", "Tell me about {a}.",
        "In the field of {a}, what are the most important ideas, and how do they relate to {b}?",
        "Provide insights into the impact of {a} on {b}.", "Write three questions for a quiz about {a}, with "
        "answers.",
    ))  # fmt: skip
    return form.format(a=topic, b=other, audience=random.choice(AUDIENCES))


def _compose(random: Random) -> str:
    form = random.choice(FORMS)
    subject = random.choice((random.choice(SUBJECTS), random.choice(TOPICS), f"a trip to {random.choice(CITIES)}"))
    verb = random.choice(("Write", "Compose", "Craft", "Can you write", "Please write", "Create"))
    return f"{verb} {form} about {subject}{'?' if verb.startswith('Can') else '.'}"


def _letter(random: Random) -> str:
    tone = random.choice(("polite", "formal", "friendly", "professional", "persuasive", "short", "apologetic"))
    verb = random.choice(("Draft", "Write", "Help me write", "Compose"))
    what = random.choice(("email", "letter", "message"))
    article = "an" if tone[0] in "aeiou" else "a"
    return f"{verb} {article} {tone} {what} to {random.choice(PEOPLE.split(', '))} about {random.choice(GOALS)}."


def _role(random: Random) -> str:
    role, topic, city = random.choice(ROLES), random.choice(TOPICS), random.choice(CITIES)
    form = random.choice((
        "Imagine you are {role}. What would you say about {topic}?", "Act as {role} and answer: why does {topic} "
        "matter?",
        "For this chat you are {role}. How would you spend a day in {city}?",
        "You are {role}. Introduce yourself and give me your best advice on {topic}.",
        "Speak to me as {role} would. I want to learn about {topic}. Where do I begin?",
        "Picture yourself as {role}. Someone asks you to move to {city}. How do you feel?",
    ))  # fmt: skip
    return form.format(role=role, topic=topic, city=city)


def _advice(random: Random) -> str:
    living, city, country = random.choice(LIVING), random.choice(CITIES), random.choice(COUNTRIES)
    form = random.choice((
        "Give me {n} tips for {living}.", "How do I get started with {living}?", "What are the benefits of {living}?",
        "Create a weekly plan for {living}.", "I am struggling with {living}. What should I do?",
        "What should I see on a {n}-day trip to {city}?", "Plan a weekend in {city} for a family with two children.",
        "What food should I try in {country}?", "Suggest {n} gifts for someone who loves {living}.",
        "Recommend {n} books about {topic}.", "What are some good questions to ask about {living}?",
        "List {n} interesting facts about {country}.", "What is the best time of year to visit {country}?",
    ))  # fmt: skip
    topic = random.choice(SCIENCE + TECHNOLOGY + SOCIETY)
    return form.format(n=random.randint(3, 10), living=living, city=city, country=country, topic=topic)


def _reason(random: Random) -> str:
    a, b, c = random.sample(FIRST_NAMES, 3)
    n, m = random.randint(2, 9), random.randint(10, 40)
    form = random.choice((
        "{a} is taller than {b}, and {b} is taller than {c}. Is {a} taller than {c}? Explain why.",
        "{a} and {b} share {n} cookies, and {a} takes one more than {b}. How many does each of them get?",
        "{a}, {b} and {c} each own a different pet: a cat, a dog and a fish. {a} does not own the cat, and {b} owns "
        "the fish."
        " Who owns the dog?",
        "If it takes {n} machines {n} minutes to make {n} parts, how long do {m} machines need to make {m} parts?",
        "{a} goes to {place} every day but never buys anything. What could be the reasons?",
        "There are {m} people at {place}. {n} of them leave, and then twice as many arrive. How many are there now?",
        "You overtake the person in {n}th place in a race. Which place are you in now? Where is that person now?",
        "One morning {a} met {b} at {place}. {b}'s shadow fell to the left of {a}. Which way was {a} facing? "
        "Explain.",
    ))  # fmt: skip
    return form.format(a=a, b=b, c=c, n=n, m=m, place=random.choice(PLACES))


def _extract(random: Random) -> str:
    lines = []
    for _ in range(random.randint(2, 4)):
        name, city, age = random.choice(FIRST_NAMES), random.choice(CITIES), random.randint(19, 70)
        lines.append(random.choice((
            f"{name}, {age}, moved to {city} last year and works there on {random.choice(TECHNOLOGY)}.",
            f"In {city}, {name} gave a talk on {random.choice(SOCIETY)} at the age of {age}.",
            f"At {age}, {name} opened a restaurant in {city} and wrote a book about {random.choice(LIVING)}.",
        )))  # fmt: skip
    asked = random.choice((
        "Extract the name, the age and the city of each person in the following text. Output in JSON format.",
        "List all people in the text below with their cities, one per line.",
        "Read the paragraph below and say who is the oldest person in it.",
        "Rewrite the following text in a more formal style.", "Correct any grammatical errors in the following text.",
        "Give the following text a title and three keywords.",
    ))  # fmt: skip
    return f"{asked}\n{' '.join(lines)}"


KINDS = (_explain, _explain, _compose, _letter, _role, _advice, _advice, _reason, _extract)
