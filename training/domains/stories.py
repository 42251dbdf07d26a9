"""The `story` domain: short simple stories with named characters and dialogue."""

from random import Random

NAMES = "Mila Otto Nina Pip Rudi Ella Toby Lotte Sam Vera Kiko Bea Max Juna Theo Ida Leo Fritz Anni Oscar".split()
ANIMALS = "fox,hare,bear,cat,dog,owl,mouse,goat,duck,hedgehog,squirrel,frog".split(",")
TRAITS = "little,brave,clever,shy,lazy,kind,curious,grumpy,cheerful,hungry,sleepy,proud".split(",")
PLACES = "forest,village,garden,old mill,meadow,harbour,castle,market,valley,windy hill,river bank,barn".split(",")
OBJECTS = "key,lantern,red ball,silver bell,map,wooden boat,blue hat,cake,drum,golden feather,kite,letter".split(",")
WEATHER = "sunny,rainy,cold,windy,foggy,warm,quiet,snowy".split(",")
TIMES = "morning,afternoon,evening,day".split(",")
FEELINGS = "happy,sad,tired,surprised,afraid,proud,angry,glad,worried".split(",")
HIDES = "under a stone,behind the door,in a hollow tree,beside the well,on the roof,below the bridge".split(",")
HELPS = "I know the way,I can carry it,I am not afraid,I have a rope,I saw it yesterday,we can share it".split(",")
ENDINGS = (
    "From that day on they were the best of friends.,Then they all went home and had soup.,"
    "And nobody ever lost it again.,That night they slept very well.,And so they learned to ask for help.,"
    "They laughed about it for many years."
).split(",")


class Cast:
    """The characters, places and things of one story."""

    def __init__(self, rng: Random) -> None:
        self.hero, self.friend = rng.sample(NAMES, 2)
        self.hero_kind, self.friend_kind = rng.sample(ANIMALS, 2)
        self.hero_trait, self.friend_trait = rng.sample(TRAITS, 2)
        self.home, self.place = rng.sample(PLACES, 2)
        self.thing, self.other_thing = rng.sample(OBJECTS, 2)


def opening(rng: Random, cast: Cast) -> str:
    start = rng.choice(["Once upon a time", "Long ago", "Not far from here", "Many years ago"])
    return (
        f"{start} there lived a {cast.hero_trait} {cast.hero_kind} called {cast.hero}. {cast.hero} lived near the "
        f"{cast.home} and had a {cast.thing}. One {rng.choice(WEATHER)} {rng.choice(TIMES)} the {cast.thing} was gone."
    )


def search(rng: Random, cast: Cast) -> str:
    where, other = rng.sample(HIDES, 2)
    return (
        f"{cast.hero} looked {where}, but there was only a {cast.other_thing}. Then {cast.hero} looked {other}, and "
        f'found nothing at all. "Where is my {cast.thing}?" said {cast.hero}, and felt very {rng.choice(FEELINGS)}.'
    )


def meeting(rng: Random, cast: Cast) -> str:
    verb = rng.choice(["asked", "said", "called", "whispered"])
    return (
        f"In the {cast.place} {cast.hero} met {cast.friend}, a {cast.friend_trait} {cast.friend_kind}. "
        f'"Why are you so {rng.choice(FEELINGS)}?" {verb} {cast.friend}. "I have lost my {cast.thing}," said '
        f'{cast.hero}. "{rng.choice(HELPS).capitalize()}," said the {cast.friend_kind}. "Come with me!"'
    )


def journey(rng: Random, cast: Cast) -> str:
    far = rng.choice(["all day", "for an hour", "until it was dark", "through the rain", "without a word"])
    return (
        f"They walked {far} from the {cast.home} to the {cast.place}. It was {rng.choice(WEATHER)}, and the "
        f"{rng.choice([cast.hero_kind, cast.friend_kind])} was soon {rng.choice(FEELINGS)}. "
        f'"{rng.choice(HELPS).capitalize()}," said {rng.choice([cast.hero, cast.friend])}, and they went on.'
    )


def trade(rng: Random, cast: Cast) -> str:
    stranger = rng.choice([a for a in ANIMALS if a not in (cast.hero_kind, cast.friend_kind)])
    return (
        f"On the way they met an old {stranger} with a {cast.other_thing}. "
        f'"Have you seen a {cast.thing}?" asked {cast.friend}. "Perhaps," said the {stranger}. "It lies '
        f'{rng.choice(HIDES)}." {cast.hero} thanked the {stranger} and gave it some bread.'
    )


def finding(rng: Random, cast: Cast) -> str:
    return (
        f"And there it was: the {cast.thing} lay {rng.choice(HIDES)}! {cast.hero} was so {rng.choice(FEELINGS)} that "
        f'the {cast.hero_kind} danced. "Thank you, {cast.friend}," said {cast.hero}. {rng.choice(ENDINGS)}'
    )


def document(rng: Random) -> str:
    """A lost thing, a friend, a way, an end; one paragraph each, six to nine in all."""
    cast = Cast(rng)
    middle = [rng.choice([journey, trade, search])(rng, cast) for _ in range(rng.randint(2, 5))]
    parts = [opening(rng, cast), search(rng, cast), meeting(rng, cast), *middle, finding(rng, cast)]
    return "\n\n".join(parts) + "\n"
