"""Finds and masks text that looks like a password, a token or a key. Standard library only.

A secret is recognized by the name that it is assigned to, or by its own format.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MASK = "***"

# The last words of names that hold secrets: `AWS_SECRET_ACCESS_KEY`, `authToken`, `--db-pass`.
_WORDS = {
    "password", "passwords", "passwd", "pwd", "pswd", "pw", "passphrase", "passcode", "secret",
    "secrets", "token", "auth", "authorization", "credential", "credentials", "apikey", "jwt",
    "secretkey", "accesskey", "privatekey", "authtoken", "accesstoken", "cookie",
}  # fmt: skip
_KEYS = {
    "api", "access", "secret", "private", "account", "storage", "signing", "encryption", "auth",
    "ssh", "shared", "master", "service", "deploy", "subscription", "hmac", "license", "aws",
    "azure", "gcp", "google", "github", "gitlab", "hf", "openai", "anthropic", "wandb", "stripe",
}  # fmt: skip
_PASS = {"db", "database", "smtp", "ftp", "mail", "user", "root", "admin", "proxy", "ssh", "redis"}
_SEVERAL = {"auth", "access", "api", "refresh", "bearer", "session", "secret", "hf", "github"}
# Words before `token` for tokens of text, which are not secrets.
_TEXT = {
    "mask", "pad", "padding", "cls", "class", "classification", "unk", "unknown", "oov", "eos",
    "bos", "sos", "sep", "separator", "start", "end", "stop", "special", "blank", "next", "last",
    "first", "current", "previous", "prev", "per", "image", "patch", "decoder", "newline", "text",
}  # fmt: skip
_QUERY = {"sig", "signature", "key"}  # in a URL, in addition to the words above

_FORMS = re.compile(
    r"""(?x) -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----(?: (?:.|\n){0,8000}? -----END\ [A-Z ]*KEY-----
        | [\w\s+/=\\-]* )
    | \b(?: (?:AKIA|ASIA|ABIA)[0-9A-Z]{16}              # Amazon
    | AIza[\w-]{30,} | ya29\.[\w-]{10,} | GOCSPX-[\w-]{10,}  # Google
    | gh[pousr]_\w{20,} | github_pat_\w{20,} | gl[a-z]{2,5}-[\w-]{12,}  # GitHub, GitLab
    | xox[a-z]-[\w-]{8,} | xapp-[\w-]{8,}                # Slack
    | [spr]k_(?:live|test)_\w{10,} | whsec_\w{10,}       # Stripe
    | hf_\w{20,} | sk-[\w-]{20,} | r8_\w{20,} | nvapi-[\w-]{20,}  # models
    | npm_\w{20,} | pypi-[\w-]{16,} | dckr_pat_[\w-]{16,} | dop_v1_\w{20,} | dapi[0-9a-f]{32}
    | hvs\.[\w-]{16,} | SG\.[\w-]{16,}\.[\w-]{16,} | SK[0-9a-f]{32} | AccountKey=[\w+/=]{20,}
    | eyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]* )                  # a JSON web token
    | (?<=hooks\.slack\.com/services/)[\w/]+"""
)
# `https://user:password@host`, `https://token@host`. A password may contain an @.
_URL = re.compile(r"(?<!\w)(?P<scheme>\w++://)(?P<user>[^\s/:@'\"]*)(?P<rest>[^\s/?#'\"]*@)")
_QUERIED = re.compile(r"(?<=[?&;])(?P<name>[\w.-]++)=(?P<value>[^&#\s\"']+)")
_SCHEME = re.compile(
    r"\b(Bearer(?= +[\w.~+/=-]{8})|(?i:bearer|basic|token|digest)(?= +[\w.~+/=-]*[\dA-Z=]))"
    r" +[\w.~+/=-]{6,}"
)
_FLAG = re.compile(r"(?<![\w-])(?P<name>--?[A-Za-z][\w-]*+) +(?P<value>[^\s-]\S*)")
# A line of YAML, whose value may contain spaces without quotes.
_LINE = re.compile(r"(?m)^[ +-]*(?P<name>[\w.-]++): +(?P<value>[\w][^\n\"'(){}\[\]]*)$")
_GIVEN = re.compile(
    r"""(?xi) (?<![\w-]) (?P<name> [\w-]++ ) \\?["']?
    \s* (?: : \s* (?:typing\.)? (?:str|bytes|any|optional|secretstr|list|tuple|dict)
        (?: \[[^\n=]{0,80}\] )? (?: \s*\|\s*\w+ )* \s* (?==) )?
    (?P<sign> [:=] ) =? (?P<gap> [ \t]* )"""
)
_VALUE = re.compile(
    r"""(?xi) [bfru]{0,2} (?: \"{3} (?:.|\n){0,4000}? \"{3} | '{3} (?:.|\n){0,4000}? '{3}
            | "(?: [^"\\\n] | \\. )*+" | '(?: [^'\\\n] | \\. )*+' | \\" [^"\n]*? \\" )
        | \( (?: [^()] | \([^()]{0,400}\) ){0,4000}+ \)
        | \[ (?: [^\[\]] | \[[^\[\]]{0,400}\] ){0,4000}+ \]
        | (?: (?:bearer|basic|token|digest) \ + )? [^\s"',]* [^\s"',;&)\]}]"""
)
_PLAIN = re.compile(
    r"(?i)(?:true|false|null|(?:str|int|float|bool|bytes|any|none| \| )+|[%@][\w./()]+|\W*"
    r"|(?:(?:bearer|basic|token|digest) +)?\*+)"
)
_CODE = re.compile(r"[A-Za-z_][\w.]*[(\[]")  # a call or a subscript, not a literal


def masked(text: str, known: Iterable[str] = ()) -> str:
    """Replaces text that looks like a secret with stars.

    Args:
        text: Any text, such as an argument, a diff of source files or a message.
        known: Secrets to mask wherever they occur.
    """
    for secret in sorted(known, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
    text = _FORMS.sub(MASK, text)
    text = _URL.sub(_without_password, text)
    text = _SCHEME.sub(rf"\1 {MASK}", text)
    text = _QUERIED.sub(_without_query, text)
    text = _FLAG.sub(_without_value, text)
    text = _LINE.sub(_without_value, text)
    return _without_assigned(text)


def masked_all(value: Any, known: Iterable[str] = (), *, name: str = "") -> Any:
    """Masks every string in a JSON value.

    Args:
        value: The value, nested in any way.
        known: Secrets to mask wherever they occur.
        name: The value's name, which may mark it as a secret.
    """
    if isinstance(value, Mapping):
        return {key: masked_all(item, known, name=str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        flags = (item if re.fullmatch(r"--?[\w-]+", str(item)) else name for item in value)
        names = [name, *flags][:-1]  # in a list of arguments, a flag may precede its value
        items = zip(value, names, strict=True)
        return [masked_all(item, known, name=str(before)) for item, before in items]
    if not isinstance(value, str):
        return value
    return MASK if value and is_secret(name) else masked(value, known)


def held(values: Any, name: str = "") -> Iterator[str]:
    """Yields the strings with secret names in nested `values`, except the shortest."""
    if isinstance(values, Mapping):
        for key, item in values.items():
            yield from held(item, str(key))
    elif isinstance(values, (list, tuple)):
        for item in values:
            yield from held(item, name)
    elif isinstance(values, str) and len(values) > 5 and is_secret(name):
        yield values


def is_secret(name: str) -> bool:
    """Returns whether a name, such as `S3Config.secret_key`, is that of a secret."""
    name = name.rpartition(".")[2]
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]
    *_, before, last = ["", "", *words]
    if last in ("key", "keys"):
        return before in _KEYS
    if last == "tokens":
        return before in _SEVERAL
    if last.endswith("token"):
        return (last.removesuffix("token") or before) not in _TEXT
    if last == "signature":
        return before in ("amz", "goog")
    written_together = last.endswith(("password", "passwd", "secret", "apikey"))
    return last in _WORDS or written_together or (last == "pass" and before in _PASS)


def _without_password(found: re.Match[str]) -> str:
    """Keeps a user name with a password, and SSH's user name without one."""
    if found["rest"].startswith(":"):
        return f"{found['scheme']}{found['user']}:{MASK}@"
    is_name = found["user"] == "git" or "ssh" in found["scheme"]
    return found[0] if is_name or not found["user"] else f"{found['scheme']}{MASK}@"


def _without_query(found: re.Match[str]) -> str:
    name = found["name"].lower()
    signs = name in _QUERY or name.startswith(("x-amz-s", "x-goog-s"))
    return f"{found['name']}={MASK}" if signs or is_secret(found["name"]) else found[0]


def _without_value(found: re.Match[str]) -> str:
    if not is_secret(found["name"]) or _PLAIN.fullmatch(found["value"]):
        return found[0]
    return found[0].removesuffix(found["value"]) + MASK


def _without_assigned(text: str) -> str:
    """Masks values assigned to secret names, also within other values."""
    parts, done = [], 0
    for given in _GIVEN.finditer(text):
        if given.start() < done or not is_secret(given["name"]):
            continue
        value = _VALUE.match(text, given.end())
        if value and not _is_ordinary(value[0], given):
            parts += [text[done : given.end()], MASK]
            done = value.end()
    return "".join([*parts, text[done:]])


def _is_ordinary(value: str, given: re.Match[str]) -> bool:
    """Returns whether a value cannot be a secret under any name."""
    is_code = given["sign"] == "=" and given["gap"] and _CODE.match(value)
    is_count = value.isdigit() and given["name"].lower().endswith("token")
    is_masked = value.startswith(MASK)
    return bool(is_masked or is_code or is_count or _PLAIN.fullmatch(value))
