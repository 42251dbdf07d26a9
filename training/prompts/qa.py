"""Short questions as people type them into a search box."""

from random import Random

from training.prompts.words import CITIES, COUNTRIES, SCIENCE, SOCIETY, TECHNOLOGY

WORKS = (
    "pride and prejudice, the godfather, star wars, the wizard of oz, moby dick, romeo and juliet, the lord of the "
    "rings, "
    "jurassic park, titanic, the beatles, the rolling stones, bohemian rhapsody, the mona lisa, game of thrones, "
    "friends, "
    "the simpsons, breaking bad, frozen, toy story, harry potter, the great gatsby, hamlet, the odyssey, casablanca, "
    "the matrix, back to the future, imagine, the sound of music, grey's anatomy, sherlock holmes, doctor who, star "
    "trek"
).split(", ")
EVENTS = (
    "the world cup, the olympic games, the super bowl, the first world war, the american civil war, the french "
    "revolution, "
    "the boston tea party, the first moon landing, the fall of the berlin wall, the battle of waterloo, the gold "
    "rush, "
    "the black death, the great fire of london, the tour de france, the world series, the nba finals, wimbledon"
).split(", ")
THINGS = (
    "the telephone, the light bulb, the steam engine, penicillin, the airplane, paper, the bicycle, the computer, "
    "dynamite, "
    "the printing press, the camera, chocolate, basketball, the zipper, the thermometer, the submarine, pizza, the "
    "compass"
).split(", ")
BODY = "liver kidneys heart lungs brain stomach skin pancreas spleen spine bladder thyroid".split()
ANIMALS = "elephant blue whale cheetah penguin kangaroo honey bee bald eagle polar bear octopus giraffe".split()
CHARACTERS = "the main character, the villain, the best friend, the father, the queen, the doctor, the "
"narrator".split(", ")
FORMS = (
    "who wrote {work}", "who played {character} in {work}", "when did {work} come out", "where was {work} filmed",
    "who is {character} in {work}", "how many people live in {country}", "what is the capital of {country}",
    "what is the population of {city}", "where is {city} located", "what language do they speak in {country}",
    "who is the president of {country}", "what is the currency of {country}", "when did {country} become independent",
    "when did {event} take place", "who won {event} in {year}", "where was {event} held in {year}", "why did "
    "{event} happen",
    "how long did {event} last", "who invented {thing}", "when was {thing} invented", "where does {thing} come from",
    "what is the function of the {body}", "where is the {body} located in the human body", "what is {science}",
    "how does {science} work", "what causes {science}", "what is the meaning of {society}", "when did {society} "
    "begin",
    "who started {society}", "what is the difference between {technology} and {other}", "what is {technology} used "
    "for",
    "how many {animal}s are there in the world", "what does a {animal} eat", "how long does a {animal} live",
    "what is the longest river in {country}", "what is the highest mountain in {country}", "what is {city} famous "
    "for",
    "which country borders {country}", "who discovered {science}", "what year did {event} start",
    "how many episodes of {work} are there", "what is the plot of {work}", "is {work} based on a true story",
    "who sang the theme song of {work}", "what are the colors of the flag of {country}", "what is the weather like "
    "in {city}",
    "who founded the city of {city}", "what type of government does {country} have", "how far is {city} from {town}",
)  # fmt: skip


def write(random: Random) -> str:
    """Returns a question."""
    technology, other = random.sample(TECHNOLOGY, 2)
    city, town = random.sample(CITIES, 2)
    text = random.choice(FORMS).format(
        work=random.choice(WORKS),
        character=random.choice(CHARACTERS),
        country=random.choice(COUNTRIES),
        city=city,
        town=town,
        event=random.choice(EVENTS),
        year=random.randint(1950, 2022),
        thing=random.choice(THINGS),
        body=random.choice(BODY),
        animal=random.choice(ANIMALS),
        science=random.choice(SCIENCE),
        society=random.choice(SOCIETY),
        technology=technology,
        other=other,
    )
    return text[0].upper() + text[1:] + "?"
