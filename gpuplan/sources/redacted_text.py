"""Names, addresses and users in texts, and what stands in for each: the same word always gets the same stand-in."""

import re
from ipaddress import ip_address

_ADDRESS = re.compile(r"(?<!\w)[0-9a-fA-F:.]{2,60}")
"""What may be an IP address, a port behind it or not; `ipaddress` decides."""
_PORT = re.compile(r":\d{1,5}$")
_HARDWARE_ADDRESS = re.compile(
    r"(?<![\w:-])[0-9a-fA-F]{2}([:-])[0-9a-fA-F]{2}(?:\1[0-9a-fA-F]{2}){4,18}(?![\w:-])"
)
_HOME = re.compile(r"(?:(?<=/home/)|(?<=/Users/))[^/\s:'\"]+")
_LOGIN = re.compile(r"[\w.-]{1,64}(?=@)")
_DOMAIN = re.compile(r"(?<![\w.-])(?<![^/]/)(?:[\w-]{1,63}\.){1,8}([A-Za-z][A-Za-z-]{1,62})(?![\w-])(?!\.\w)")
_FILES = frozenset(
    {
        "bin", "cfg", "conf", "cpp", "cu", "ini", "js", "json", "key", "ko", "log", "pem", "pid", "pub", "py", "service",
        "sh", "so", "sock", "socket", "toml", "txt", "xml", "yaml", "yml",
    }
)  # fmt: skip
"""What a file name ends in: `docker.sock` is no name of a host."""
_ORDINARY = frozenset({"root", "local", "localhost", "127.0.0.1", "::1", "::", "0.0.0.0", ""})
"""Say nothing about anybody."""
_ENGLISH = frozenset(
    {
        "a", "an", "and", "are", "as", "at", "be", "by", "cpu", "do", "for", "go", "gpu", "has", "host", "i", "id", "if",
        "in", "ip", "is", "it", "me", "ms", "my", "no", "not", "of", "ok", "on", "or", "os", "s", "so", "ssh", "the", "to",
        "up", "us", "was", "we",
    }
)  # fmt: skip
"""Words of every sentence: a host of that name is meant only where something says so."""
_MEANT = "jump host ", "machine that ", "planned on as ", "@", "'", '"'
_PUBLIC_REGISTRIES = ("docker.io", "ghcr.io", "quay.io", "nvcr.io", "gcr.io")
_PUBLIC_OWNERS = frozenset(
    {
        "ascend",
        "huggingface",
        "intel",
        "library",
        "lmsysorg",
        "nvidia",
        "pytorch",
        "rayproject",
        "rocm",
        "vllm",
    }
)


class StandIns:
    """What each word is replaced by."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}
        self._stand_ins: set[str] = set()
        self._counts: dict[str, int] = {}
        self._pattern: re.Pattern[str] | None = None

    def give(self, word: str | None, stand_in: str) -> None:
        if word is not None and word not in _ORDINARY and word not in self._given:
            self._given[word] = stand_in
            self._stand_ins.add(stand_in)
            self._pattern = None

    def number(self, word: str | None, kind: str) -> None:
        """Give a word the next stand-in of its kind: `user-3`."""
        known = word is None or word in _ORDINARY or word in self._given or word in self._stand_ins
        if not known:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self.give(word, f"{kind}-{self._counts[kind]}")

    def word(self, word: str) -> str:
        return self._given.get(word, word)

    def numbered(self, word: str, kind: str) -> str:
        """The stand-in of a word that shows what it is; texts are looked through for it after `learn`."""
        pattern = self._pattern
        self.number(word, kind)
        self._pattern = pattern
        return self.word(word)

    def learn(self) -> None:
        """Look for every word that was given a stand-in in the texts from now on: a user seen in a path, say."""
        self._pattern = None

    def address(self, address: str) -> str:
        """`10.0.0.11/24` → `address-1/24`."""
        place, slash, length = address.partition("/")
        return self.numbered(place, "address") + slash + length

    def image(self, tag: str) -> str:
        """A tag without the registry, the path and the account of a house's own."""
        registry, slash, rest = tag.partition("/")
        if not slash:
            return tag
        if "." not in registry and ":" not in registry and registry != "localhost":
            return f"{self._owner(registry)}/{rest.rpartition('/')[2]}"
        if not any(registry == name or registry.endswith(f".{name}") for name in _PUBLIC_REGISTRIES):
            return f"{self.numbered(registry, 'registry')}/{rest.rpartition('/')[2]}"
        owner, slash, name = rest.partition("/")
        return f"{registry}/{self._owner(owner)}/{name.rpartition('/')[2]}" if slash else tag

    def _owner(self, owner: str) -> str:
        return owner if owner.lower() in _PUBLIC_OWNERS else self.numbered(owner, "account")

    def device(self, device: str) -> str:
        """What a file system lies on: `filer:/models` names a server."""
        server, colon, path = device.partition(":/")
        if colon and server and "/" not in server:
            return f"{self.numbered(server.strip('[]'), 'server')}:/{self.text(path)}"
        return self.text(device)

    def text(self, text: str) -> str:
        """A text in which every known word, and what looks like an address, a login or a home, is replaced."""
        if text in self._given:
            return self._given[text]
        parts = text.split(", ")
        if len(parts) > 1 and all(part in self._given for part in parts):
            return ", ".join(self._given[part] for part in parts)
        text = self._known().sub(lambda match: self.word(match.group()), text)
        text = _HARDWARE_ADDRESS.sub(lambda match: self.numbered(match.group(), "mac"), text)
        text = _ADDRESS.sub(self._address_in_text, text)
        for pattern in (_HOME, _LOGIN):
            text = pattern.sub(lambda match: self.numbered(match.group(), "user"), text)
        return text

    def message(self, text: str) -> str:
        """A text as `text` does it, names with dots taken for hosts: not for command lines, which name modules so."""
        return _DOMAIN.sub(self._domain, self.text(text))

    def _known(self) -> re.Pattern[str]:
        if self._pattern is None:
            free: list[str] = []
            meant: list[str] = []
            for word in sorted(self._given, key=len, reverse=True):
                plain = word.lower() in _ENGLISH or word.isdigit()
                (meant if plain else free).append(re.escape(word))
            patterns = [rf"(?<!\w)(?:{'|'.join(free)})(?!\w)"] if free else []
            if meant:
                before = "|".join(f"(?<={re.escape(words)})" for words in _MEANT)
                patterns.append(rf"(?:{before})(?:{'|'.join(meant)})(?!\w)")
            self._pattern = re.compile("|".join(patterns) if patterns else r"(?!)")
        return self._pattern

    def _address_in_text(self, match: re.Match[str]) -> str:
        found = match.group()
        ended, plain = found.rstrip("."), found.rstrip(".:")
        for candidate in (ended, plain, _PORT.sub("", plain)):
            if _is_address(candidate):
                return self.address(candidate) + found[len(candidate) :]
        return found

    def _domain(self, match: re.Match[str]) -> str:
        name = match.group()
        if match.group(1).lower() in _FILES or name.lower().endswith(_PUBLIC_REGISTRIES):
            return name
        return self.numbered(name, "domain")


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
