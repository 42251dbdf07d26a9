"""German sentences to be translated, with spaces around their punctuation, as translators' test sets have them."""

from random import Random

SUBJECTS = (
    "Der Bürgermeister|Die Regierung|Ein Sprecher der Polizei|Die Mannschaft|Der Verein|Das Unternehmen|Die Lehrerin|"
    "Der junge Fahrer|Eine Gruppe von Studenten|Die Bundeskanzlerin|Der Minister|Die Feuerwehr|Das Museum|Die Stadt "
    "München|"
    "Der Autor|Die Firma|Das Gericht|Ein Zeuge|Die Gemeinde|Der Trainer|Die Opposition|Der Präsident|Die Schule|"
    "Der Zug nach Hamburg|Das neue Theater|Die Ärztin|Mein Bruder|Unsere Nachbarin|Der Bauer|Die Wissenschaftler|"
    "Eine Studie aus Berlin|Das Hotel am See|Die Partei|Der Verkehrsminister|Die Europäische Union|Das Orchester"
).split("|")
PLURAL = ("Die Wissenschaftler",)
VERBS = (
    "hat|am Montag|einen Antrag|gestellt;hat|im vergangenen Jahr|mehr als 200 Mitarbeiter|eingestellt;"
    "will|bis zum Sommer|eine Lösung|finden;muss|in den nächsten Wochen|die Kosten|senken;kann|ohne Hilfe|das "
    "Problem|lösen;"
    "hat|nach dem Spiel|die Fans|begrüßt;wird|am Freitag|das neue Gebäude|eröffnen;möchte|in Zukunft|weniger "
    "Strom|verbrauchen;"
    "hat|trotz der Kritik|den Vertrag|unterschrieben;hat|gestern Abend|ein Konzert|besucht;soll|ab März|die "
    "Straße|sperren;"
    "konnte|mit viel Glück|den Unfall|verhindern;hat|zum ersten Mal|einen Preis|gewonnen;wird|wahrscheinlich|die "
    "Reise|absagen;"
    "hat|vor Gericht|die Wahrheit|gesagt;darf|nach den neuen Regeln|keine Bilder|zeigen;hat|in der Nacht|den "
    "Wald|durchsucht;"
    "hatte|schon lange|auf diesen Tag|gewartet;will|im Herbst|ein Buch über die Stadt|veröffentlichen;"
    "hat|in einem Interview|über die Zukunft|gesprochen;hat|wegen des Wetters|die Veranstaltung|verschoben;"
    "sollte|nach Ansicht der Experten|mehr Geld für Bildung|ausgeben;hat|seit Jahren|mit der "
    "Universität|zusammengearbeitet"
).split(";")
ENDS = (
    " .| .| .| , sagte ein Sprecher .| , wie die Zeitung berichtet .| , obwohl es viele Zweifel gab .|"
    " , weil die Zeit knapp ist .| , um die Bürger zu schützen .| , und alle waren zufrieden .| , aber niemand war "
    "überrascht .|"
    " , was viele überraschte .| , nachdem der erste Versuch gescheitert war .| , heißt es in einer Mitteilung .|"
    " , damit die Kinder sicher zur Schule kommen .| , zum Glück ohne Folgen .| , erklärte er am Mittwoch in Köln ."
).split("|")
WHOLE = (
    "Es ist noch nicht klar , wann {place} wieder geöffnet wird .|Rund {n} Menschen leben heute in {place} .|"
    "Das ist nicht das Ende der Geschichte .|Die Preise sind um {n} Prozent gestiegen .|Wir sind sehr stolz auf "
    "unsere Arbeit .|"
    "In {place} wurde am Samstag gefeiert .|„ Wir hoffen auf besseres Wetter “ , sagte {who} .|"
    "Nach Angaben der Polizei wurden {n} Personen verletzt .|Der Bau von {place} kostet etwa {n} Millionen Euro .|"
    "Was bedeutet das für {place} ?|{who} ist seit {n} Jahren Mitglied des Vereins .|Auch {who} war nicht zufrieden "
    ".|"
    "Ich habe {who} seit {n} Wochen nicht gesehen .|Die Fahrt nach {place} dauert ungefähr {n} Minuten .|"
    "Bei gutem Wetter kann man von {place} bis zu den Bergen sehen .|Wie {who} berichtet , gibt es in {place} keine "
    "Schule mehr .|"
    "Die Ausstellung in {place} zeigt {n} Bilder aus dem 19. Jahrhundert .|Wenn es regnet , bleibt {who} lieber zu "
    "Hause ."
).split("|")
PLACES = (
    "Berlin|der Altstadt|Frankfurt|dem neuen Stadion|Wien|der Schweiz|der Region|Leipzig|dem Dorf|Stuttgart|dem "
    "Hafen|Dresden|"
    "Zürich|dem Schwarzwald|Bremen|der Bibliothek"
).split("|")
WHO = (
    "Frau Weber|Herr Schneider|Thomas Müller|die Direktorin|der Sänger|Anna Becker|der Kapitän|Professor Lang|ein "
    "Anwohner|"
    "Maria Hoffmann|der Chef der Firma|die Sprecherin"
).split("|")


def write(random: Random) -> str:
    """Returns a request with one or two sentences."""
    sentences = [_sentence(random) for _ in range(random.choice((1, 1, 1, 2)))]
    return f"Translate German to English: {' '.join(sentences)}"


def _sentence(random: Random) -> str:
    if random.random() < 0.35:
        whole = random.choice(WHOLE)
        who = random.choice(WHO)
        text = whole.format(place=random.choice(PLACES), n=random.randint(2, 90), who=who)
        return text[0].upper() + text[1:]
    verb, when, what, end = random.choice(VERBS).split("|")
    subject = random.choice(SUBJECTS)
    if subject in PLURAL:
        verb = {
            "hat": "haben",
            "will": "wollen",
            "muss": "müssen",
            "kann": "können",
            "wird": "werden",
            "soll": "sollen",
            "möchte": "möchten",
            "konnte": "konnten",
            "darf": "dürfen",
            "hatte": "hatten",
            "sollte": "sollten",
        }[verb]
    if random.random() < 0.4:
        begins = f"{when[0].upper()}{when[1:]} {verb} {subject[0].lower()}{subject[1:]}"
        return f"{begins} {what} {end}{random.choice(ENDS)}"
    return f"{subject} {verb} {when} {what} {end}{random.choice(ENDS)}"
