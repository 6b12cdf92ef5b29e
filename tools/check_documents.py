# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Check what people read: the README, the documents, the change log, messages and ``--help``.

    python tools/check_documents.py [--counts]

Finds texts that are too long, pages that do not begin with what they are for and for whom,
figures without the command that regenerates them, dead links and paths, pictures that are not as
drawn, and words that are not the field's.  Ends with 1 if there is any; `make lint` runs it.
``--counts`` prints the words of each page.
"""
from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
import re
import sys

import draw_pictures
from list_figures import figures_in

ROOT = Path(__file__).resolve().parents[1]
README, CHANGELOG = ROOT / 'README.md', ROOT / 'CHANGELOG.rst'
#: At most so many words: of the README, of all documents together, of what was never released.
README_WORDS, README_NUMBERS, DOCUMENT_WORDS, CHANGELOG_WORDS = 1200, 40, 35000, 1000
#: Words of this house, each with the field's.
HOUSE_WORDS = {
    r'mend(s|ed|ing)?': 'fix',
    r'told': 'reported, stated',
    r'beside': 'next to, in addition to, during',
    r'whoever': 'anybody who, the one that',
    r'break(s|ing)?[ -]ins?': 'collapse, drop',
    r'under way': 'in flight, running',
    r'none such': 'no such',
    r'in turns': 'alternating',
}
_HOUSE = {re.compile(rf'\b({word})\b', re.IGNORECASE): better
          for word, better in HOUSE_WORDS.items()}
#: "For whom", as the first paragraph of a page says it.
_FOR_WHOM = re.compile(
    r'\b[Ff]or (?:\w+ )?(?:people|everybody|anybody|readers|users|contributors|integrators|'
    r'operators|authors|researchers|whom)\b|\bfor people\b')
_COMMAND = re.compile(r'^ {4}\S|^```|`(?:make|intradp|python|sh|bench/|PYTHONPATH)', re.MULTILINE)
_FIGURE = re.compile(r'\d')
#: A path of a file of the repository, in code marks.
_PATH = re.compile(r'`((?:[\w.-]+/)+[\w-]+\.(?:py|c|md|yaml|xml|msg|srv|sh|txt|csv))`')


def documents() -> list[Path]:
    """Return the pages of the documentation."""
    return sorted((ROOT / 'doc').rglob('*.md'))


def prose(text: str) -> str:
    """Return what is read of Markdown: no code blocks, comments, tags or targets of links."""
    text = re.sub(r'^```.*?^```', '', text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r'<!--.*?-->', '', text, flags=re.DOTALL)
    text = re.sub(r'!\[[^\]]*\]\([^)]*\)|<[^>]*>', '', text)
    return re.sub(r'\]\([^)]*\)', ']', text)


def words(text: str) -> int:
    """Count the words of Markdown."""
    return sum(1 for each in prose(text).split() if re.search(r'\w', each))


def numbers(text: str) -> list[str]:
    """Return the numbers of Markdown, but not those of names (ROS 2, arXiv, versions)."""
    text = re.sub(r'ROS 2|arXiv [\d.]+|Apache-2\.0', '', prose(text))
    return re.findall(r'(?<![\w.`/-])\d[\d.,]*', text)


def anchors(page: Path) -> set[str]:
    """Return the names that headings have."""
    return {re.sub(r'[^\w\- ]', '', heading.lower()).strip().replace(' ', '-')
            for heading in re.findall(r'^#+ (.*)$', page.read_text(), re.MULTILINE)}


def dead_links(page: Path) -> Iterator[str]:
    """Yield links, and pictures, that lead nowhere in the repository."""
    text = re.sub(r'^```.*?^```', '', page.read_text(), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r'\]\(([^)\s]+)\)', text) + re.findall(r'src(?:set)?="([^"]+)"', text)
    for link in links:
        name, _, heading = link.partition('#')
        target = page.parent / name if name else page
        if not re.match(r'\w+:', link) and not (
                target.exists() and (not heading or heading in anchors(target))):
            yield f'dead link {link}'


def dead_paths(page: Path) -> Iterator[str]:
    """Yield paths of files that are not there, below the root, the package or the tests."""
    for path in _PATH.findall(page.read_text()):
        if not any((ROOT / base / path).exists()
                   for base in ('', 'intradp_ros', 'intradp_lab', 'test')) and (
                not path.startswith(('out/', '/'))) and not any(
                    ROOT.glob(f'intradp_*/**/{path}')):
            yield f'no file {path}'


def without_purpose(page: Path) -> Iterator[str]:
    """Yield a complaint if a page does not begin with what it is for and for whom."""
    _, _, body = page.read_text().partition('\n')
    first = body.strip().split('\n\n')[0]
    if not _FOR_WHOM.search(' '.join(first.split())):
        yield 'its first paragraph does not say for whom it is ("For people who ...")'


def claims_without_command(page: Path) -> Iterator[str]:
    """Yield the sections of a page of results that hold figures and name no command."""
    for section in re.split(r'^## ', page.read_text(), flags=re.MULTILINE)[1:]:
        title, _, body = section.partition('\n')
        if _FIGURE.search(prose(body)) and not _COMMAND.search(body):
            yield f'section "{title}" has figures and names no command'


def house_words(text: str) -> Iterator[str]:
    """Yield the words of a text that are not the field's."""
    for pattern, better in _HOUSE.items():
        for match in pattern.finditer(text):
            yield f'"{match.group()}": write {better}'


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the texts that a module shows to users: of errors, logs, `help` and epilogs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from _strings(node.exc)
        elif isinstance(node, ast.Call) and _name(node.func) in (
                'warning', 'warn', 'info', 'error', 'fatal', 'add_argument', 'print', 'log',
                'add_parser', 'Setting', 'Parameter', 'ParameterDescriptor'):
            yield from _strings(node)
        elif isinstance(node, ast.Assign) and any(
                isinstance(t, ast.Name) and t.id in ('EPILOG', 'DESCRIPTION', 'HELP', 'SUMMARY')
                for t in node.targets):
            yield from _strings(node.value)


def _name(function: ast.expr) -> str:
    return getattr(function, 'attr', getattr(function, 'id', ''))


def _strings(node: ast.AST) -> Iterator[tuple[int, str]]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.lineno, each.value


def unreleased(changelog: str) -> str:
    """Return the section of what was never released."""
    match = re.search(r'^Forthcoming\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)', changelog,
                      re.DOTALL | re.MULTILINE)
    return match[1] if match else ''


def problems() -> Iterator[str]:
    """Yield what is wrong with documents, with the file."""
    readme = README.read_text()
    if (count := words(readme)) > README_WORDS:
        yield f'README.md: {count} words, at most {README_WORDS}'
    if (count := len(numbers(readme))) > README_NUMBERS:
        yield f'README.md: {count} numbers, at most {README_NUMBERS}'
    if (count := sum(words(page.read_text()) for page in documents())) > DOCUMENT_WORDS:
        yield f'doc: {count} words, at most {DOCUMENT_WORDS}'
    if (count := len(unreleased(CHANGELOG.read_text()).split())) > CHANGELOG_WORDS:
        yield f'CHANGELOG.rst: {count} words were never released, at most {CHANGELOG_WORDS}'
    for block in figures_in(readme):
        if not block.commands:
            yield f'README.md:{block.line}: {", ".join(block.figures)}: name the command'
    for page in [README, ROOT / 'CONTRIBUTING.md', ROOT / 'SECURITY.md', *documents()]:
        found = [*dead_links(page), *house_words(prose(page.read_text())), *dead_paths(page)]
        if page.parent.name == 'results':
            found += claims_without_command(page)
        if page in documents():
            found += without_purpose(page)
        yield from (f'{page.relative_to(ROOT)}: {each}' for each in found)
    yield from (f'doc/images/{name}: not as drawn, run python tools/draw_pictures.py'
                for name in draw_pictures.stale())


def message_problems() -> Iterator[str]:
    """Yield the words of messages and of ``--help`` that are not the field's, with the line."""
    for path in sorted(ROOT.glob('intradp_*/**/*.py')):
        for line, said in messages(ast.parse(path.read_text())):
            yield from (f'{path.relative_to(ROOT)}:{line}: {each}' for each in house_words(said))


def main() -> int:
    """Print what is wrong, or the counts."""
    if '--counts' in sys.argv[1:]:
        for page in [README, *documents()]:
            print(f'{words(page.read_text()):6} {page.relative_to(ROOT)}')
        print(f'{sum(words(page.read_text()) for page in documents()):6} doc, '
              f'at most {DOCUMENT_WORDS}')
        return 0
    found = [*problems(), *message_problems()]
    print('\n'.join(found))
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
