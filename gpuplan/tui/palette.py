"""The command palette: everything a key does here, those of the screen first."""

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from gpuplan.tui.offers import Offer

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from gpuplan.tui.shell import ShellApp


class Commands(Provider):
    """The commands of the screen the palette was opened on; one that is refused says why when it is chosen."""

    async def discover(self) -> Hits:
        for offer in self._offers():
            yield DiscoveryHit(
                self._prompt(offer, Content(offer.command.title)),
                self._doing(offer),
                text=offer.command.title,
                help=_help(offer),
            )

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for offer in self._offers():
            title = offer.command.title
            score = matcher.match(title)
            if score > 0:
                yield Hit(
                    score,
                    self._prompt(offer, matcher.highlight(title)),
                    self._doing(offer),
                    text=title,
                    help=_help(offer),
                )

    @property
    def _shell(self) -> "ShellApp":
        return cast("ShellApp", self.app)

    def _offers(self) -> tuple[Offer, ...]:
        here = self._shell.offers(self.screen)
        return tuple(offer for offer in here if offer.command.id != "app.palette")

    def _prompt(self, offer: Offer, title: Content) -> Content:
        keys = self._shell.keys(offer.command)
        whole = Content.assemble(title, (f"  {keys}" if keys else "", "$text-muted"))
        return whole if offer.why_not is None else whole.stylize("dim")

    def _doing(self, offer: Offer) -> "partial[Coroutine[Any, Any, bool]]":
        return partial(self._shell.run_action, offer.command.action, offer.node)


def _help(offer: Offer) -> str:
    return offer.command.help if offer.why_not is None else f"Not now: {offer.why_not}"
