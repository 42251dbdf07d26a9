"""Questions behind the tables of a small database."""

from random import Random

SCHEMAS = (
    "employee(employee_id, name, age, salary, department_id, hire_date); department(department_id, name, city, "
    "budget);"
    "project(project_id, title, department_id, start_year)",
    "book(book_id, title, author_id, price, year, genre); author(author_id, name, country, birth_year);"
    "sale(sale_id, book_id, quantity, date)",
    "Flights(flight_no, origin, destination, distance, departure_time, price, aircraft_id); Aircraft(aircraft_id, "
    "name, range);"
    "Airports(code, city, country)",
    "Students(student_id, first_name, last_name, age, major); Courses(course_id, title, credits, teacher_id);"
    "Enrollment(student_id, course_id, grade); Teachers(teacher_id, name, salary)",
    "customers(customer_id, name, city, email, points); orders(order_id, customer_id, order_date, total);"
    "order_items(order_id, product_id, quantity); products(product_id, name, price, category)",
    "team(Team_ID, Name, City, Founded); player(Player_ID, Name, Age, Position, Team_ID, Goals); "
    "match(Match_ID, Home_Team, Away_Team, Season, Attendance)",
    "movies(id, title, year, director_id, rating, budget); directors(id, name, nationality); "
    "actors(id, name, birth_year, gender); cast_list(movie_id, actor_id, role)",
    "Hospital(Hospital_ID, Name, City, Beds); Doctor(Doctor_ID, Name, Specialty, Hospital_ID, Years_Working);"
    "Patient(Patient_ID, Name, Age, Doctor_ID)",
    "city(ID, Name, Country, Population, Area); river(River_ID, Name, Length, Country); mountain(Mountain_ID, Name, "
    "Height, Country)",
    "singer(Singer_ID, Name, Country, Age, Sales); concert(Concert_ID, Title, Year, Stadium_ID); "
    "stadium(Stadium_ID, Name, Capacity, Location); singer_in_concert(Concert_ID, Singer_ID)",
    "accounts(account_id, customer_name, balance, branch_id); branches(branch_id, name, city, assets);"
    "loans(loan_id, account_id, amount, interest)",
    "restaurants(id, name, city, rating, cuisine); reviews(id, restaurant_id, stars, year); dishes(id, "
    "restaurant_id, name, price)",
    "museum(Museum_ID, Name, City, Open_Year, Num_of_Paintings); painting(Painting_ID, Title, Artist, Year, "
    "Museum_ID, Height)",
    "Pets(pet_id, name, type, weight, age); Owners(owner_id, name, city, phone); Owns(owner_id, pet_id)",
    "ship(Ship_ID, Name, Type, Nationality, Tonnage, Built_Year); captain(Captain_ID, Name, Ship_ID, age, Rank)",
    "Cars(Id, Model, Maker, Horsepower, Weight, Year, Cylinders); Makers(Id, Name, Country); Dealers(Id, City, "
    "Maker_Id)",
    "shops(Shop_ID, Name, District, Num_Products, Manager); device(Device_ID, Device, Carrier, Price); "
    "stock(Shop_ID, Device_ID, Quantity)",
    "election(Election_ID, Year, Party, Votes, Region); candidate(Candidate_ID, Name, Age, Party, Election_ID)",
    "wine(No, Name, Grape, Year, Price, Score, Appellation); grapes(ID, Grape, Color); appellations(No, "
    "Appellation, County, Area)",
    "channel(Channel_ID, Name, Owner, Share); program(Program_ID, Title, Launch, Channel_ID); broadcast(Channel_ID, "
    "Program_ID, Time_of_day)",
)  # fmt: skip
FORMS = (
    "How many {t}s are there?", "List the {c} of all {t}s.", "What is the {c} of each {t}?", "Show all distinct {c} "
    "of {t}s.",
    "What are the {c} and {d} of every {t}?", "Find the {c} of the {t} with the highest {d}.", "What is the average "
    "{d} of all {t}s?",
    "List the {c} of {t}s in ascending order of {d}.", "What is the {c} of the {t} whose {d} is the smallest?",
    "How many {t}s are there for each {c}?", "Which {c} has the most {t}s?", "Find the {c} of {t}s whose {d} is "
    "greater than {n}.",
    "Return the maximum and minimum {d} across all {t}s.", "What are the {c} of the {t}s that have no {u}?",
    "Show the {c} of each {t} and the number of its {u}s.", "List the {c} of {t}s that have at least {k} {u}s.",
    "How many different {c} are there in {t}?", "For each {c}, what is the total {d} of {t}s?",
    "Find the {c} of the {k} {t}s with the largest {d}.", "Which {t}s have a {d} above the average? Show their {c}.",
    "What is the {c} of the {t} that belongs to the {u} with {e} {n}?", "Please show the most common {c} of {t}s.",
    "Find the number of {t}s whose {c} contains the word 'new'.", "Show the {c} shared by {t}s with {d} below {n} "
    "and above {m}.",
    "What are the {c} of {t}s ordered by {d} from high to low ?", "Count the {u}s of the {t} whose {c} is 'Smith'.",
)  # fmt: skip


def write(random: Random) -> str:
    """Returns a request."""
    tables = [table.strip() for table in random.choice(SCHEMAS).split(";")]
    names = {table.partition("(")[0]: table.partition("(")[2].rstrip(")").split(", ") for table in tables}
    table, other = random.sample(list(names), 2)
    first, second = random.sample(names[table], 2)
    question = random.choice(FORMS).format(
        t=_said(table).rstrip("s"),
        u=_said(other).rstrip("s"),
        c=_said(first),
        d=_said(second),
        e=_said(random.choice(names[other])),
        n=random.randint(10, 3000),
        m=random.randint(5000, 9000),
        k=random.randint(2, 5),
    )
    kept = tables if random.random() < 0.7 else [one for one in tables if one.partition("(")[0] in (table, other)]
    return "Tables:\n" + "\n".join(kept) + f"\n\nWrite one SQL query that answers: {question}"


def _said(name: str) -> str:
    return name.replace("_", " ").lower()
