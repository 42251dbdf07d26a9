"""News to be summarised, and encyclopedias' passages with a question behind them.

Both are put together from sentences; a target that answers `asked` writes others, about which `about` asks.
"""

from random import Random

from training.prompts.words import CITIES, COUNTRIES, FIRST_NAMES, LIVING, SCIENCE, SOCIETY, TECHNOLOGY, TOPICS

LAST_NAMES = (
    "Miller Okafor Petrov Tanaka Garcia Lindqvist Haddad Novak Dubois Rossi Campbell Nguyen Schmidt Costa Byrne".split()
)
EVENTS = (
    "a fire broke out in a warehouse|two buses collided on an icy road|a rare painting was found in an attic|"
    "a new bridge was opened to traffic|a storm tore the roofs off dozens of homes|a team of students won a "
    "robotics contest|"
    "a zoo welcomed a baby elephant|thieves stole a collection of watches|a bakery gave away a thousand loaves of "
    "bread|"
    "a hiker was rescued after three days|a court ruled against a phone company|a football club signed its youngest "
    "player|"
    "a school closed because of a broken heater|doctors performed an unusual operation|a flight was diverted by a "
    "passenger|"
    "a dog walked forty miles to find its owners|a power cut stopped the subway|a factory announced the loss of jobs"
).split("|")
NEWS = (
    "{Name} {last}, {age}, said: 'I have never seen anything like it.'|Police said that {n} people were questioned.|"
    "The incident happened at about {hour} on {day} in the centre of {city}.|{last} has lived in {city} for {k} "
    "years.|"
    "A spokesman for the city council said an investigation had begun.|The damage is estimated at ${n},000.|"
    "Neighbours told reporters that the street had been busy all day.|'We are grateful to everyone who helped,' "
    "{last} added.|"
    "Officials expect that it will take {k} weeks until everything is back to normal.|No one was seriously hurt.|"
    "It is the third such case in {city} this year.|Experts warned that more should be done to prevent a repeat.|"
    "{Name} {last} and his wife were on their way home from work.|The mayor of {city} visited the scene on {day}.|"
    "A video of the event was watched more than {n},000 times online.|Tickets for the next day were sold out within "
    "{k} hours.|"
    "Scroll down for video.|The family now plans to move to {other}.|Similar plans in {other} were dropped last "
    "year.|"
    "Last year, {n} people were treated in hospital after a similar accident in {other}."
).split("|")
FACTS = (
    "{Topic} is one of the most studied subjects of its kind.|The term was first used in {year} by a scholar from "
    "{city}.|"
    "In {country}, {topic} became widely known in the {decade}s.|There are {k} main types of {topic}.|"
    "According to a study from {year}, about {n} percent of people have heard of {topic}.|"
    "Researchers at the University of {city} described it in detail in {year}.|It is closely related to {other}.|"
    "Critics of {topic} point out what it costs, and who pays for it.|"
    "The largest collection on the subject is kept in {city}.|{Name} {last} wrote the first book about it in {year}.|"
    "Before {year}, little was known about {topic} outside of {country}.|Its importance has grown with {other}.|"
    "An international conference on {topic} takes place in {city} every {k} years.|Today it is taught at most "
    "schools.|"
    "The government of {country} supports work on {topic} with {n} million dollars a year.|"
    "{Name} {last} received a prize for work on {topic} in {year}."
).split("|")
QUESTIONS = (
    "What is {topic}?|When was the term {topic} first used?|Who wrote the first book about {topic}?|"
    "Where is the largest collection on {topic}?|Why is {topic} important?|How many types of {topic} are there?|"
    "Which country supports work on {topic}?|What is {topic} related to?|Where does {topic} come from?|"
    "What are the benefits of {topic}?|Who received a prize for {topic}?|How does {topic} work?"
).split("|")
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
ARTICLES = (
    "Write a news article about the following event: in {city}, {event}.|Write a newspaper story: in {city}, "
    "{event}.|"
    "Write a detailed encyclopedia article about {topic}.|Write a long, factual paragraph about {topic}.|"
    "Write an encyclopedia entry on the history of {topic} in {country}."
).split("|")


def summarization(random: Random) -> str:
    """Returns a request for a summary."""
    return about(random, _news(random), "")


def rag(random: Random) -> str:
    """Returns passages with a question behind them."""
    topic = random.choice(TOPICS)
    return about(random, "\n".join(_entry(random, topic) for _ in range(random.randint(2, 3))), topic)


def asked(random: Random) -> tuple[str, str]:
    """Returns a request for a text of some length, and its topic; no topic if it is news."""
    form, topic = random.choice(ARTICLES), random.choice(SCIENCE + TECHNOLOGY + SOCIETY)
    event, city, country = random.choice(EVENTS), random.choice(CITIES), random.choice(COUNTRIES)
    text = form.format(topic=topic, event=event, city=city, country=country)
    return text, topic if "{topic}" in form else ""


def about(random: Random, text: str, topic: str) -> str:
    """Returns a request about a text: for a summary, or the answer to a question where it has a topic."""
    if not topic:
        return f"Summarize: {text}"
    return f"{text}\n{random.choice(QUESTIONS).format(topic=topic)}"


def _news(random: Random) -> str:
    city, other = random.sample(CITIES, 2)
    name, last = random.choice(FIRST_NAMES), random.choice(LAST_NAMES)
    first = f"In {city}, {random.choice(EVENTS)} on {random.choice(DAYS)}."
    return " ".join([first, *(_filled(random, one, city, other, name, last, "") for one in _some(random, NEWS))])


def _entry(random: Random, topic: str) -> str:
    city, name, last = random.choice(CITIES), random.choice(FIRST_NAMES), random.choice(LAST_NAMES)
    other = random.choice(SCIENCE + SOCIETY + LIVING)
    sentences = [_filled(random, one, city, other, name, last, topic) for one in _some(random, FACTS)]
    return f"{topic[0].upper()}{topic[1:]} {' '.join(sentences)}"


def _some(random: Random, forms: list[str]) -> list[str]:
    return random.sample(forms, random.randint(4, 8))


def _filled(random: Random, form: str, city: str, other: str, name: str, last: str, topic: str) -> str:
    year = random.randint(1650, 2015)
    return form.format(
        Name=name,
        last=last,
        city=city,
        other=other,
        topic=topic,
        Topic=topic[:1].upper() + topic[1:],
        country=random.choice(COUNTRIES),
        day=random.choice(DAYS),
        year=year,
        decade=year // 10 * 10,
        age=random.randint(19, 80),
        n=random.randint(3, 95),
        k=random.randint(2, 9),
        hour=f"{random.randint(1, 12)}{random.choice(('am', 'pm'))}",
    )
