"""Words that fill the slots of several domains' prompts."""

FIRST_NAMES = (
    "Anna Ben Carla Dmitri Elena Farid Grace Hiro Ines Jonas Kofi Lena Marco Nadia Omar Petra Quentin Rosa Samuel "
    "Tara "
    "Uma Viktor Wendy Xavier Yara Zoe Alice Bob Chloe Derek Emily Frank Gina Henry Isabel Jack Karen Liam Mona Noah "
    "Olivia Paul Rachel Steve Tina Victor Will Tom Maya Lucas Julia Peter Kate Martin Sara Leo Ruth Adam Nina Oscar"
).split()

COUNTRIES = (
    "France, Brazil, Japan, Kenya, Canada, Norway, Egypt, India, Mexico, Poland, Vietnam, Portugal, Chile, Turkey, "
    "Ghana, "
    "Australia, Greece, Peru, Thailand, Italy, Spain, Germany, China, Sweden, Morocco, Argentina, South Africa, "
    "Ireland, "
    "Indonesia, Nigeria, Russia, Iceland, Finland, Austria, Cuba, Nepal, New Zealand, Ukraine, Iran, the United "
    "States, "
    "the United Kingdom, the Netherlands, South Korea, Switzerland, Belgium, Denmark, Hungary, Romania, Ethiopia"
).split(", ")

CITIES = (
    "Paris, Tokyo, Nairobi, Toronto, Oslo, Cairo, Mumbai, Mexico City, Warsaw, Hanoi, Lisbon, Santiago, Istanbul, "
    "Sydney, "
    "Athens, Lima, Bangkok, Rome, Madrid, Berlin, Beijing, Stockholm, Buenos Aires, Cape Town, Dublin, Jakarta, "
    "Lagos, "
    "Moscow, Reykjavik, Vienna, Havana, Chicago, Boston, Seattle, London, Amsterdam, Seoul, Zurich, Prague, Venice"
).split(", ")

SCIENCE = (
    "photosynthesis, black holes, gravity, plate tectonics, the immune system, DNA replication, the water cycle, "
    "evolution, "
    "the periodic table, vaccines, quantum computing, general relativity, entropy, magnetism, climate change, "
    "volcanoes, "
    "earthquakes, the nitrogen cycle, antibiotics, neurons, the human heart, coral reefs, the solar system, tides, "
    "lightning, "
    "nuclear fusion, semiconductors, lasers, ocean currents, fermentation, enzymes, mitochondria, genetics, "
    "supernovae, "
    "dark matter, the ozone layer, chemical bonds, acids and bases, superconductors, radioactivity, the food chain, "
    "hibernation, bird migration, pollination, soil erosion, glaciers, dinosaurs, viruses, blood pressure, sleep"
).split(", ")

TECHNOLOGY = (
    "machine learning, blockchain, cloud computing, solar panels, electric cars, 3D printing, the internet, "
    "smartphones, "
    "virtual reality, cybersecurity, databases, operating systems, compilers, neural networks, self-driving cars, "
    "recommendation systems, GPS, renewable energy, robotics, open source software, version control, data privacy, "
    "search engines, social media, wireless networks, batteries, drones, barcodes, video games, web browsers, "
    "encryption"
).split(", ")

SOCIETY = (
    "inflation, democracy, the stock market, supply and demand, human rights, urban planning, public health, free "
    "trade, "
    "the Renaissance, the Industrial Revolution, the Roman Empire, ancient Egypt, the Silk Road, World War II, the "
    "Cold War, "
    "the French Revolution, colonialism, immigration, taxes, minimum wage, voting systems, the United Nations, "
    "globalization, "
    "gender equality, education reform, the printing press, philosophy, stoicism, existentialism, Buddhism, "
    "impressionism, "
    "jazz music, Shakespeare's plays, Greek mythology, modern architecture, journalism, advertising, the Great "
    "Depression, "
    "game theory, behavioral economics, monopolies, central banks, the moon landing, the Vikings, the Aztecs, "
    "feudalism"
).split(", ")

LIVING = (
    "meditation, running a marathon, baking bread, growing tomatoes, learning the guitar, saving money, public "
    "speaking, "
    "time management, healthy eating, job interviews, remote work, yoga, photography, travelling alone, raising a "
    "puppy, "
    "home repair, chess, swimming, cooking pasta, camping, keeping a journal, making friends, reading more books, "
    "learning a new language, writing a resume, starting a small business, planning a wedding, moving to a new city, "
    "playing basketball, painting, gardening, drinking coffee, hiking, cycling to work, sleep habits, stress relief"
).split(", ")

TOPICS = SCIENCE + TECHNOLOGY + SOCIETY + LIVING
