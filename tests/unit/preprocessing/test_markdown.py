"""A document as Markdown: what is a heading, what an item of a list, and which lines are one paragraph."""

from __future__ import annotations

from preprocessing import markdown
from preprocessing.answers import Document, Line, Page, Seconds


def line(text: str, top: float, *, height: float = 20, left: float = 50, width: float = 500) -> Line:
    right, bottom = left + width, top + height
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    return Line(text=text, confidence=1, corners=corners, words=[])


def written(*pages: list[Line]) -> str:
    text = ""
    return markdown.of(
        Document(
            text=text,
            pages=[
                Page(
                    number=number,
                    width=800,
                    height=1000,
                    source="pixels",
                    text=text,
                    lines=lines,
                    seconds=Seconds(open=0),
                )
                for number, lines in enumerate(pages, 1)
            ],
        )
    )


def test_lines_of_a_paragraph_are_joined() -> None:
    lines = [line("The skewer holds", 100), line("many pieces.", 124), line("Another one.", 180)]
    assert written(lines) == "The skewer holds many pieces.\n\nAnother one.\n"


def test_a_word_that_is_cut_at_the_end_of_a_line_is_one() -> None:
    assert written([line("of infor-", 100), line("mation", 124)]) == "of information\n"
    assert written([line("the end -", 100), line("or not", 124)]) == "the end - or not\n"


def test_what_is_larger_is_a_heading() -> None:
    lines = [line("Title", 10, height=40), line("Part", 70, height=28), line("text one", 110), line("text two", 134)]
    lines += [line("text three", 158)]
    assert written(lines) == "# Title\n\n## Part\n\ntext one text two text three\n"


def test_a_heading_of_two_lines_is_one() -> None:
    lines = [
        line("A long", 10, height=40),
        line("title", 55, height=40),
        *(line("text", 120 + 24 * row) for row in range(3)),
    ]
    assert written(lines) == "# A long title\n\ntext text text\n"


def test_lists_are_lists() -> None:
    lines = [line("• first", 100), line("and more of it", 124), line("• second", 148), line("2. numbered", 172)]
    assert written(lines) == "- first and more of it\n\n- second\n\n2. numbered\n"


def test_a_short_line_ends_a_paragraph() -> None:
    lines = [line("A full line of text that", 100), line("ends here.", 124, width=100), line("The next begins.", 148)]
    assert written(lines) == "A full line of text that ends here.\n\nThe next begins.\n"


def test_the_next_column_begins_a_paragraph() -> None:
    assert written([line("left column", 100), line("right column", 20, left=600)]) == "left column\n\nright column\n"


def test_what_markdown_would_take_for_itself_is_escaped() -> None:
    assert written([line("2 * 3 [a](b) <c> snake_case", 100)]) == "2 \\* 3 \\[a\\](b) \\<c\\> snake\\_case\n"
    assert written([line("# no heading", 100)]) == "\\# no heading\n"
    assert written([line("---", 100)]) == "\\---\n"


def test_letters_without_height_are_text() -> None:
    assert written([line("tiny", 100, height=0), line("text", 100, height=0)]) == "tiny text\n"


def test_pages_follow_one_another_and_empty_ones_are_left_out() -> None:
    assert written([line("one", 10)], [], [line("three", 10)]) == "one\n\nthree\n"
    assert written([]) == "\n"
