"""Renders the example cards that ship with the package from the manifest beside them."""

from hf_elastic.hub.cards import PICTURE_NAME, render_card
from hf_elastic.hub.figures import draw_pareto
from hf_elastic.hub.manifest import read_manifest
from hf_elastic.resources import model_cards_folder

EXAMPLES = model_cards_folder() / "examples"


def render_examples() -> dict[str, str]:
    """Gives the content of the card of the family, and of that of its smallest member, by file name."""
    manifest = read_manifest(EXAMPLES)
    members = {"family_card.md": manifest.supernet, "member_card.md": manifest.members[-1]}
    return {name: str(render_card(manifest, member)) for name, member in members.items()}


def main() -> None:
    for name, content in render_examples().items():
        (EXAMPLES / name).write_text(content, encoding="utf-8")
    draw_pareto(read_manifest(EXAMPLES), EXAMPLES / PICTURE_NAME)


if __name__ == "__main__":
    main()
