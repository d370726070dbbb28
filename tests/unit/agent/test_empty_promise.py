"""Detection of answers that only announce an action."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.answer.empty_promise import is_only_announcement

ANNOUNCEMENTS = [
    "I'll now read the file:",
    "I’ll now read the file:",  # noqa: RUF001 - typographic apostrophe
    "Let me check …",
    "Let me check if the file exists.",
    "Let me take a quick look at the logs...",
    "Sure! Let me search for that.",
    "Okay, I'm going to run the tests now.",
    "To answer that, I need to open `notes.txt` first.",
    "The file is missing. I'll create it now.",
    "First, let me list the folder.\n\nThen I'll read the notes.",
    "Now let me **read** the notebooks…",
    "I will start by reading the configuration.",
    "Let's check the logs.",
    "I'll proceed with the next page.",
    "I'll go ahead and fetch the page. One moment, please.",
    "Checking the calendar now…",
    "Searching the web:",
    "Just a second.",
    "Ich sehe jetzt nach …",
    "Ich sehe nach.",
    "Ich werde jetzt die Datei lesen:",
    "Einen Moment bitte, ich schaue kurz nach.",
    "Lass mich das kurz prüfen.",
    "Lassen Sie mich in den Unterlagen nachsehen.",
    "Als Nächstes öffne ich die Datei.",
    "Gern! Dazu lese ich die Datei.",
    "Je vais maintenant lire le fichier :",
    "Laissez-moi vérifier cela.",
    "Voy a buscar el archivo.",
    "Déjame revisar los datos...",
    "接下来读取文件：",  # noqa: RUF001
    "好的，我先查看一下目录。",  # noqa: RUF001
]

ANSWERS = {
    "nothing": "",
    "blanks": " \n",
    "an answer": "The file says 42.",
    "completed action": "I have read the file, and it says 42.",
    "a question": "I'll read the file. Which one do you mean?",
    "a Chinese question": "我先查看目录，可以吗？",  # noqa: RUF001
    "an offer": "I can read the file if you like.",
    "condition": "I'll read it once you upload it.",
    "condition first": "If that works, I'll run the tests.",
    "waits for the user": "Let me know which file I should open.",
    "asks for input": "Please send the path, then I'll open the file.",
    "for later": "I'll check again tomorrow.",
    "from now on": "From now on I'll use the short form.",
    "a refusal": "I will not run this command.",
    "no action": "I'll be here.",
    "a game": "Great, let's start!",
    "a name": "I'll call you Sam.",
    "a remark": "Let me add that this is risky.",
    "a promise": "I'll make sure of it.",
    "remembering": "I'll remember that.",
    "explains": "Let me explain how to read files.",
    "a wish": "I need you to read the file.",
    "followed by the finding": "Let me check the calendar: you are free on Monday.",
    "a list": "I'll do this:\n- read the file\n- run the tests",
    "numbers": "Plan:\n1. Let me read the file.",
    "a quotation": "> I'll now read the file:",
    "code": "I'll run this:\n```\nls\n```\nLet me check.",
    "a table": "| a | b |\nLet me check.",
    "long": "The report says a lot about the year. " * 6 + "Let me check.",
    "very long": "Let me check " + "very " * 60 + "well.",
    "German, what is seen": "Ich sehe jetzt, dass die Datei fehlt.",
    "German, what is done": "Ich habe die Datei gelesen.",
    "German, a habit": "Ich lese gern Bücher.",
    "German, on a condition": "Ich prüfe das gleich, sobald die Datei da ist.",
    "German, a question": "Soll ich die Datei jetzt lesen?",
    "German, for later": "Ich werde morgen wieder nachsehen.",
    "French, on a condition": "Je vais vérifier si vous voulez.",
    "Spanish, for later": "Voy a revisar mañana.",
    "Chinese, on a condition": "如果需要，我会查看文件。",  # noqa: RUF001
    "a heading of an answer": "Here is the list:",
}


@pytest.mark.parametrize("text", ANNOUNCEMENTS)
def test_an_announced_action_is_detected(text: str) -> None:
    assert is_only_announcement(text)


@pytest.mark.parametrize("text", ANSWERS.values(), ids=ANSWERS)
def test_an_ordinary_answer_is_not_an_announcement(text: str) -> None:
    assert not is_only_announcement(text)


@pytest.mark.parametrize("mark", ["?", "？", "? …"])  # noqa: RUF001
@pytest.mark.parametrize("text", ANNOUNCEMENTS)
def test_a_question_to_the_user_is_not_an_announcement(text: str, mark: str) -> None:
    assert not is_only_announcement(text.rstrip(".:… ") + mark)


@given(st.text(min_size=301).filter(lambda text: len(text.strip()) > 300))
def test_a_long_text_is_not_an_announcement(text: str) -> None:
    assert not is_only_announcement(text)


@given(st.text(alphabet="ailestmnr' .,:now", max_size=300))
def test_any_text_is_classified_quickly_regardless_of_surrounding_blanks(text: str) -> None:
    assert is_only_announcement(text) == is_only_announcement(f"\n {text}  ")
