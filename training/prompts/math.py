"""Word problems of primary school, with names and numbers that fit."""

from random import Random

from training.prompts.words import FIRST_NAMES

ITEMS = (
    "apples marbles stickers books pencils cookies cupcakes flowers candles shells stamps oranges balloons coins "
    "cards "
    "bracelets muffins tickets bottles toys eggs sandwiches magazines T-shirts chairs bricks"
).split()
PLACES = (
    "a bakery|a bookstore|a farm|a toy shop|a cinema|a library|a factory|a restaurant|a school|a garden|a bus company"
)
JOBS = "washes cars|walks dogs|teaches piano|mows lawns|paints fences|babysits|repairs bicycles|cleans windows".split(
    "|"
)
FORMS = (
    "{a} has {n} {item}. {b} has {k} times as many {item} as {a}. How many {item} do they have together?",
    "{a} buys {n} {item} for ${c} each and {m} {other} for ${d} each. How much does {a} spend in total?",
    "{a} earns ${big} an hour and works {h} hours a day, {w} days a week. How much does {a} earn in {k} weeks?",
    "There are {big} {item} in a box. {a} takes {n} of them and gives {k} to {b}. How many {item} are left in the box?",
    "{place} sells {big} {item} on Monday, twice as many on Tuesday, and {n} fewer on Wednesday than on Tuesday. "
    "How many {item} does it sell in the three days?",
    "{a} {job} for ${c} an hour.  If {a} works {h} hours on Saturday and {k} hours on Sunday, how much money does "
    "{a} make?",
    "A train travels at {speed} miles per hour for {h} hours and then at {slow} miles per hour for {k} hours. "
    "How many miles does it travel?",
    "{a} reads {n} pages every day. The book has {pages} pages. How many days does {a} need to finish the book?",
    "{a} is {n} years older than {b}. In {k} years, {b} will be {age} years old. How old is {a} now?",
    "A recipe needs {k} cups of flour for {n} {item}. How many cups of flour are needed for {many} {item}?",
    "{a} had ${money}. {a} spent half of it on {item} and ${c} on {other}. How much money does {a} have left?",
    "A shirt costs ${money}. It is on sale for {percent}% off. How much does {a} pay for {k} shirts?",
    "{a}, {b} and {c_name} share {triple} {item} equally. {a} then eats {k} of hers. How many does {a} have left?",
    "{place} has {n} rows of {h} {item} each. {k} rows are removed. How many {item} are left?",
    "{a} runs {k} miles on weekdays and {h} miles on each day of the weekend. How many miles does {a} run in {w} "
    "weeks?",
    "In a class of {many} students, {percent}% are girls. How many boys are in the class?",
    "{a} saves ${c} every week. A bicycle costs ${money}. After how many weeks can {a} buy it?",
    "A tank holds {pages} liters of water.  It loses {n} liters an hour.  How much water is in the tank after {h} "
    "hours?",
    "{a} bakes {many} {item}. {b} eats {n}, and the rest are put into bags of {k}. How many bags does {a} need?",
    "The sum of two numbers is {pages}. One of them is {n} more than the other. What are the numbers?",
    "{a} has {n} fewer {item} than {b}. {b} has {big} {item}. If {a} doubles what {a} has, how many {item} does {a} "
    "have?",
    "A rectangle is {big} meters long and {n} meters wide. What are its area and its perimeter?",
    "{a} drinks {k} glasses of water in the morning and {h} in the evening. How many glasses is that in {w} weeks?",
    "{place} charges ${c} for adults and ${d} for children. A family of {k} adults and {h} children goes there with "
    "a "
    "discount of ${k}. How much do they pay?",
    "What is {pages} divided by {k}, plus {big}?",
    "Solve for x: {k}x + {n} = {pages}.",
    "{a} plants {n} seeds. 1/{k} of the first {triple} seeds do not grow, and {b} plants {big} more. "
    "How many seeds were planted in all?",
)


def write(random: Random) -> str:
    """Returns a problem."""
    a, b, c_name = random.sample(FIRST_NAMES, 3)
    item, other = random.sample(ITEMS, 2)
    k = random.randint(2, 6)
    values = {
        "n": random.randint(3, 25),
        "m": random.randint(2, 12),
        "k": k,
        "h": random.randint(2, 9),
        "w": random.randint(2, 6),
        "c": random.randint(2, 20),
        "d": random.randint(2, 15),
        "big": random.randint(10, 90),
        "age": random.randint(9, 40),
        "speed": random.randrange(40, 90, 5),
        "slow": random.randrange(20, 40, 5),
        "pages": random.randrange(100, 600, 10),
        "many": random.randrange(20, 80, 4),
        "money": random.randrange(20, 200, 5),
        "percent": random.randrange(5, 80, 5),
        "triple": 3 * random.randint(3, 20),
    }
    place = random.choice(PLACES.split("|"))
    text = random.choice(FORMS).format(
        a=a, b=b, c_name=c_name, item=item, other=other, place=place, job=random.choice(JOBS), **values
    )
    return text[0].upper() + text[1:]
